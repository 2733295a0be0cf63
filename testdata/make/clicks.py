#!/usr/bin/env python3
"""Writes clicks-10k.jsonl: 10,000 ad clicks, synthetic, the same bytes on every run.

  make/clicks.py OUT_DIR [SEED]       (OUT_DIR/expected must exist; clicks-10k.jsonl was made with the default seed)

Fields, in this order: click_id, ad_id, user_id, ts (RFC 3339, UTC, milliseconds).
Offsets are line numbers from 0. What holds, and is asserted below:
  - lines 0..4999 hold exactly 1,200 lines with ad_id "ad-42"; lines 5000..5399 are all "ad-42";
    so the running count of "ad-42" is 1,200 at offset 5,000 and 1,600 at offset 5,400,
    with dedup by click_id and without it (no repeated ad-42 line stands before offset 5,400);
  - 100 lines repeat an earlier line byte for byte: 80 of them soon (the repeat is at most 30 s behind the
    newest ts so far), 5 after 100 to 300 s, 15 after 12 to 20 minutes; these 5 and 5 of the 15 repeat an ad-42
    click from before offset 5,000 after offset 5,400: they need dedup state that outlived a restore at 5,000;
  - apart from late and repeated lines, no ts is more than 30 s behind the newest ts so far;
  - 100 lines are late: their ts is 600 to 630 s older than their place in the file.
"""
import datetime as dt, hashlib, json, os, random, sys

SEED = int(sys.argv[2]) if len(sys.argv) > 2 else 20261130
N, CHECKPOINT, CRASH, KEY = 10_000, 5_000, 5_400, "ad-42"
BASE = dt.datetime(2026, 3, 1, 12, 0, 0, tzinfo=dt.timezone.utc)

rnd = random.Random(SEED)
ADS = ["ad-%d" % i for i in range(1, 101)]
OTHERS = [a for a in ADS if a != KEY]
WEIGHTS = [1.0 / (i + 1) ** 0.9 for i in range(len(OTHERS))]     # a few ads get most of the clicks
rnd.shuffle(OTHERS)

# 1. where the lines with the key are
key_at = set(rnd.sample(range(CHECKPOINT), 1_200)) | set(range(CHECKPOINT, CRASH))
key_at |= {i for i in range(CRASH, N) if rnd.random() < 0.24}

# 2. arrival instants in ms from BASE: about one hour in all, never two lines at the same one
arr, t = [], 0
for _ in range(N):
    t += 1 + int(rnd.expovariate(1 / 359.0))
    arr.append(t)

# 3. which lines repeat an earlier one: repeat offset -> original offset
late = set(rnd.sample([i for i in range(400, N) if not CHECKPOINT <= i < CRASH], 100))
repeats, used = {}, set()


def find(want, lo_ms, hi_ms, key, orig_before=N, rep_from=0, soon=False):
    got = 0
    while got < want:
        o = rnd.randrange(0, min(orig_before, N))
        if o in used or o in late or o in repeats or (o in key_at) != key:
            continue
        gap = rnd.randint(lo_ms, hi_ms)
        c = next((i for i in range(o + 1, N) if arr[i] >= arr[o] + gap), None)
        if c is None or c < rep_from or c in used or c in late or c in repeats or CHECKPOINT <= c < CRASH:
            continue
        if (c in key_at) != key or (key and c < CRASH):
            continue
        if soon and not arr[c] - arr[o] + delay[o] <= 30_000:
            continue
        repeats[c] = o
        used.update((o, c))
        got += 1


# 4. how far each line's ts lies behind its arrival
delay = []
for i in range(N):
    if i in late:
        delay.append(rnd.randint(600_000, 630_000))
    else:
        r = rnd.random()
        delay.append(rnd.randint(0, 1_000) if r < 0.7 else rnd.randint(1_000, 10_000) if r < 0.95
                     else rnd.randint(10_000, 30_000))

find(5, 720_000, 1_200_000, True, orig_before=CHECKPOINT, rep_from=CRASH)
# the key's clicks that arrived shortly before the checkpoint come again right after the crash offset: the burst of
# 400 lines between takes longer than 30 s, so these stand behind the 30 s bound as well
find(5, 100_000, 300_000, True, orig_before=CHECKPOINT, rep_from=CRASH)
find(10, 720_000, 1_200_000, False)
find(15, 200, 20_000, True, orig_before=N - 200, rep_from=CRASH, soon=True)
find(65, 200, 20_000, False, orig_before=N - 200, soon=True)
# a repeat may stand where a click of the key was planned only if it repeats a click of the key (and the other way
# round), so the places of the key stay what step 1 says

lines = []
for i in range(N):
    if i in repeats:
        lines.append(lines[repeats[i]])
        continue
    ts = BASE + dt.timedelta(milliseconds=arr[i] - delay[i])
    ad = KEY if i in key_at else rnd.choices(OTHERS, WEIGHTS)[0]
    lines.append(json.dumps({
        "click_id": "c" + hashlib.sha256(b"%d/%d" % (SEED, i)).hexdigest()[:14],
        "ad_id": ad,
        "user_id": "u%04d" % rnd.randint(1, 2_000),
        "ts": ts.strftime("%Y-%m-%dT%H:%M:%S.") + "%03dZ" % (ts.microsecond // 1000),
    }, separators=(",", ":")))

recs = [json.loads(l) for l in lines]
count = lambda n, rs: sum(r["ad_id"] == KEY for r in rs[:n])
ids = lambda n: len({r["click_id"] for r in recs[:n] if r["ad_id"] == KEY})
assert len(lines) == N and len({r["click_id"] for r in recs}) == N - 100
assert count(CHECKPOINT, recs) == ids(CHECKPOINT) == 1_200
assert count(CRASH, recs) == ids(CRASH) == 1_600
assert all(r["ad_id"] == KEY for r in recs[CHECKPOINT:CRASH])
newest, behind = "", []
P = lambda s: dt.datetime.strptime(s, "%Y-%m-%dT%H:%M:%S.%fZ")
for i, r in enumerate(recs):
    if newest:
        b = (P(newest) - P(r["ts"])).total_seconds()
        behind.append((i, b))
        if i not in late and i not in repeats:
            assert b <= 30, (i, b)
    newest = max(newest, r["ts"])
over = [i for i, b in behind if b > 30]
assert set(over) <= late | set(repeats)
out = sys.argv[1]
with open(os.path.join(out, "clicks-10k.jsonl"), "w", encoding="utf-8", newline="\n") as f:
    f.write("\n".join(lines) + "\n")
with open(os.path.join(out, "expected", "clicks-repeats.csv"), "w", encoding="utf-8", newline="\n") as f:
    f.write("offset,repeats_offset,click_id,ad_id,gap_lines,arrival_gap_ms\n")
    for c in sorted(repeats):
        o = repeats[c]
        f.write("%d,%d,%s,%s,%d,%d\n" % (c, o, recs[c]["click_id"], recs[c]["ad_id"], c - o, arr[c] - arr[o]))
print("lines", N, "clicks", N - 100, "late", len(late), "more than 30 s behind", len(over),
      "ts", min(r["ts"] for r in recs), max(r["ts"] for r in recs),
      "key total", count(N, recs), "burst ms", arr[CRASH] - arr[CHECKPOINT])
