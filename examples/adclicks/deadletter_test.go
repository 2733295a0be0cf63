package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// spoiled writes the clicks with lines among them that can't be taken. It returns
// those by their byte offset.
func spoiled(t *testing.T, path string, rnd *rand.Rand) map[int64]string {
	t.Helper()
	clicks, err := os.ReadFile(clicks10k)
	if err != nil {
		t.Fatal(err)
	}
	bad := []string{"{oops", `{"click_id":1}`, "null", `{"click_id":"x","ad_id":"ad-1","ts":"yesterday"}`, "{\"ad_id\":\"\xff\"}",
		`{"click_id":"x","ad_id":"ad-1"}`, `{"click_id":"x","ad_id":"ad-1","ts":"9999-12-31T23:59:59Z"}`,
		`{"click_id":"` + strings.Repeat("x", 1<<20) + `"}`}
	var out bytes.Buffer
	lines := map[int64]string{}
	n := 0
	for line := range bytes.Lines(clicks) {
		if rnd.IntN(20) == 0 {
			text := bad[min(rnd.IntN(len(bad)*10), n)%len(bad)] // each of them once at least, the long one seldom
			if len(text) > 1000 && rnd.IntN(20) > 0 && n > len(bad) {
				text = bad[0]
			}
			lines[int64(out.Len())] = text
			out.WriteString(text + "\n")
			n++
		}
		out.Write(line)
	}
	if err := os.WriteFile(path, out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return lines
}

// wantDead compares the table of dead letters with the spoiled lines.
func wantDead(t *testing.T, path string, want map[int64]string) {
	t.Helper()
	db, err := open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var place, step, kind, reason string
	var mark int64
	var raw []byte
	kinds := map[string]int{}
	n := 0
	err = each(db, `SELECT place, mark, step, kind, reason, raw FROM dead_letter`, func(s scanner) error {
		if err := s.Scan(&place, &mark, &step, &kind, &reason, &raw); err != nil {
			return err
		}
		n++
		kinds[kind]++
		text := want[mark]
		if string(raw) != text[:min(len(text), 1<<20)] || text == "" {
			t.Errorf("the letter at byte offset %d has %d bytes, %.60q; want %d, %.60q", mark, len(raw), raw, len(text), text)
		}
		if !strings.HasSuffix(place, fmt.Sprintf(", byte offset %d", mark)) || step != "clicks (source)" || reason == "" {
			t.Errorf("the letter at byte offset %d: %s, %s, %s", mark, place, step, reason)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if n != len(want) || kinds["decode"]*kinds["event-time"]*kinds["oversized"] == 0 {
		t.Errorf("%d dead letters (%v), want %d of three kinds", n, kinds, len(want))
	}
}

// TestDeadLetters: with lines that can't be taken among the clicks the tables are
// those of the good ones, and each bad line is stored once, at any parallelism.
func TestDeadLetters(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	want := expected(t, "clicks_ad_minute_dedup", "clicks")
	for _, sink := range bothSinks {
		for _, parallelism := range []string{"1", "7"} {
			t.Run(sink+"/"+parallelism, func(t *testing.T) {
				at := newPlace(t)
				bad := spoiled(t, at.input, rand.New(rand.NewPCG(seed, 1)))
				launch(t, at.args(sink, "--dead-letters", "--parallelism", parallelism, "--checkpoint-interval", "50ms")...).Ends(0, "finished")
				wantRows(t, at.db, want)
				wantDead(t, at.db, bad)
			})
		}
	}
	at := newPlace(t)
	spoiled(t, at.input, rand.New(rand.NewPCG(seed, 1)))
	launch(t, at.args(transactional)...).Ends(10, "error: ")
}

// TestDeadLettersAfterKills: the process is killed again and again, and started
// with another parallelism each time; both tables and the dead letters come out
// as if it had never been.
func TestDeadLettersAfterKills(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	want := expected(t, "clicks_ad_minute_dedup", "clicks")
	for _, sink := range bothSinks {
		t.Run(sink, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 2))
			at := newPlace(t)
			bad := spoiled(t, at.input, rnd)
			args := at.args(sink, "--dead-letters", "--checkpoint-records", "400")
			for slot := 3; slot < 24; slot += 3 + rnd.IntN(4) {
				p := launch(t, append(slices.Clone(args), "--parallelism", strconv.Itoa(1+rnd.IntN(7)))...)
				p.Entries(at.state, slot)
				p.Signal(os.Kill)
				p.End() // by the signal, or it was done before
			}
			launch(t, append(slices.Clone(args), "--parallelism", "3")...).Ends(0)
			wantRows(t, at.db, want)
			wantDead(t, at.db, bad)
		})
	}
}
