package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/weirstream/weir/internal/chaos/trial"
)

// input is what a job reads: one file or several.
type input struct {
	arg   string // of --input
	files map[string][]click
}

// tables is what the job must have made of the first lines of each file, as
// many as read says; nil: of all.
func (in input) tables(r trial.Rules, read map[string]int64) (table, error) {
	t := table{}
	for path, clicks := range in.files {
		if read != nil {
			if n := read[path]; n < 0 || n > int64(len(clicks)) {
				return nil, trial.Failed("the checkpoint says that %d records of %s were read, which has %d", n, path, len(clicks))
			}
			clicks = clicks[:read[path]]
		}
		count(t, r, clicks)
	}
	return t, nil
}

// Clicks that a job's files hold together, about: enough for lives of some
// tenths of a second.
const size = 250_000

// ads are what is clicked at: few, so that each is hit in every epoch, or many
// with long names, so that what changes in an epoch takes some room.
type ads struct {
	n    int
	name string
}

var (
	fewAds  = ads{25, "ad-%d"}
	manyAds = ads{300, "campaign/2026/spring/ad-%d"}
)

// generate makes the files of a job.
func generate(rng *rand.Rand, r trial.Rules, a ads, dir string) (input, error) {
	in := input{files: map[string][]click{}}
	n := 1
	if rng.IntN(3) == 0 {
		n = 2 + rng.IntN(2)
	}
	for i := range n {
		path := filepath.Join(dir, fmt.Sprintf("clicks-%d.jsonl", i))
		in.files[path] = clicks(rng, r, a, size/n, fmt.Sprint(i))
		if err := write(path, in.files[path]); err != nil {
			return in, err
		}
		in.arg = path
	}
	if n > 1 {
		in.arg = filepath.Join(dir, "clicks-*.jsonl")
	}
	return in, nil
}

// clicks makes the clicks of a file: mostly out of order within the bound, some
// late by up to 45 minutes, some repeated after up to two hours, and now and
// then one exactly where a rule turns: the end of a window, its lateness, the
// end of an id's time to live. name tells the ids of one file from another's.
func clicks(rng *rand.Rand, r trial.Rules, a ads, n int, name string) []click {
	out := make([]click, 0, n+2)
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli() + rng.Int64N(minute)
	gap := 3 * 3_600_000 / int64(n) // so that three hours go by, whatever n is
	for len(out) < n {
		now += rng.Int64N(2*gap + 1)
		c := click{id: fmt.Sprintf("c%s-%x", name, len(out)), ad: fmt.Sprintf(a.name, min(rng.IntN(a.n), rng.IntN(a.n))), at: now}
		switch p := rng.IntN(1000); {
		case p < 15:
			c.at -= rng.Int64N(45 * minute)
		case p < 50 && len(out) > 0:
			c.id, c.ad, c.at = again(rng, r, out)
		case p < 52:
			out = append(out, border(r, &now, c)...)
			continue
		default:
			c.at -= rng.Int64N(r.Disorder + 1)
		}
		out = append(out, c)
	}
	return out
}

// again repeats an earlier click, often a recent one; now and then exactly, or
// one millisecond less than, a time to live away from it.
func again(rng *rand.Rand, r trial.Rules, out []click) (id, ad string, at int64) {
	back := min(len(out), 1+rng.IntN(500))
	if rng.IntN(2) == 0 {
		back = 1 + rng.IntN(len(out))
	}
	c := out[len(out)-back]
	newest := out[len(out)-1].at
	if at := c.at + r.Dedup - rng.Int64N(2); at <= newest && rng.IntN(4) > 0 {
		return c.id, c.ad, at
	}
	return c.id, c.ad, c.at + rng.Int64N(3)*1000
}

// border makes a click that moves the watermark to the very end of a minute,
// and then one whose window that closes, and one whose window it doesn't.
func border(r trial.Rules, now *int64, c click) []click {
	end := *now - *now%minute + minute
	*now = end + r.Disorder
	first, closed, open := c, c, c
	first.at = *now
	closed.id, closed.at = c.id+"a", end-r.Lateness-1
	open.id, open.at = c.id+"b", end-r.Lateness
	return []click{first, closed, open}
}

func write(path string, clicks []click) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(f, 1<<16)
	for _, c := range clicks {
		fmt.Fprintf(w, `{"click_id":%q,"ad_id":%q,"user_id":"u","ts":%q}`+"\n", c.id, c.ad,
			time.UnixMilli(c.at).UTC().Format("2006-01-02T15:04:05.000Z"))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return f.Close()
}

// read reads a file of clicks that somebody else has made.
func read(path string) (input, error) {
	b, err := os.Open(path)
	if err != nil {
		return input{}, err
	}
	defer b.Close() //nolint:errcheck // it is only read
	var out []click
	for d := json.NewDecoder(b); d.More(); {
		var l struct {
			ID string    `json:"click_id"`
			Ad string    `json:"ad_id"`
			At time.Time `json:"ts"`
		}
		if err := d.Decode(&l); err != nil {
			return input{}, fmt.Errorf("%s: %w", path, err)
		}
		out = append(out, click{l.ID, l.Ad, l.At.UnixMilli()})
	}
	return input{arg: path, files: map[string][]click{path: out}}, nil
}
