package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/codec"
	"github.com/weirstream/weir/connector/file"
	"github.com/weirstream/weir/connector/sqlite"
)

const (
	followInterval = 100 * time.Millisecond
	followFor      = 5 * time.Second
	followChunk    = 2 * time.Millisecond // lines are appended this often
)

// numbered is a line of the followed file.
type numbered struct {
	Ad  string `json:"ad"`
	Seq int64  `json:"seq"`
}

// newest is the row of an ad: its clicks, and the number of the newest.
type newest struct {
	Ad     string
	Seq    int64
	Clicks int64
}

func followJob(path, db string, opts ...file.Option) *weir.Job {
	job := weir.NewJob("bench")
	job.From("lines", file.Lines(path, codec.JSON[numbered](), opts...)).
		KeyBy(func(n numbered) string { return n.Ad }).
		Fold("newest", newest{}, func(acc newest, n numbered) newest { return newest{n.Ad, n.Seq, acc.Clicks + 1} }, weir.EachBarrier()).
		Map(func(p weir.Pair[string, newest]) newest { return p.Value }).
		To("out", sqlite.Upsert[newest](db, "newest", "ad"))
	return job
}

func appendLines(b []byte, from, to int64) []byte {
	for ; from < to; from++ {
		b = append(b, `{"ad":"ad-`...)
		b = strconv.AppendInt(b, from%hot, 10)
		b = append(b, `","seq":`...)
		b = strconv.AppendInt(b, from, 10)
		b = append(b, '}', '\n')
	}
	return b
}

// followLatency measures how many lines a second the job can read, appends half
// as many to a followed file, and sees when each has become part of a row.
func followLatency(ctx context.Context, _ int) (res result, err error) {
	err = inTemp(func(dir string) error {
		const lines = 1_000_000
		whole := filepath.Join(dir, "whole.jsonl")
		if err := os.WriteFile(whole, appendLines(nil, 1, lines+1), 0o600); err != nil {
			return err
		}
		l, err := timed(func() error {
			return followJob(whole, filepath.Join(dir, "whole.db")).Run(ctx, weir.StateDir(filepath.Join(dir, "whole")),
				weir.Interval(followInterval), weir.Parallelism(1))
		})
		if err != nil {
			return err
		}
		if n, err := clicks(ctx, filepath.Join(dir, "whole.db")); err != nil || n != lines {
			return errors.Join(err, fmt.Errorf("%d of %d lines were counted", n, lines))
		}
		rate := int64(lines / l.wall.Seconds() / 2)
		took, err := arrivals(ctx, dir, rate)
		if err != nil {
			return err
		}
		p := func(q float64) float64 { return ms(took[int(q*float64(len(took)-1))]) }
		res = result{p(0.99) - ms(followInterval), fmt.Sprintf("%d lines/s, half of what it can; interval %v; p50 %.0f, p99 %.0f, max %.0f ms; load %s",
			rate, followInterval, p(0.5), p(0.99), p(1), load())}
		return nil
	})
	return res, err
}

// clicks sums up the table.
func clicks(ctx context.Context, path string) (n int64, err error) {
	db, err := sql.Open("sqlite", path)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	err = db.QueryRowContext(ctx, "SELECT sum(clicks) FROM newest").Scan(&n)
	return n, err
}

// chunk is lines that were appended at once.
type chunk struct {
	last int64
	at   time.Time
}

// arrivals appends lines to a file that a job follows, and returns how long each
// chunk took to its row, sorted.
func arrivals(ctx context.Context, dir string, rate int64) (took []time.Duration, err error) {
	path, db := filepath.Join(dir, "grows.jsonl"), filepath.Join(dir, "grows.db")
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	started := make(chan struct{})
	running := followJob(path, db, file.Follow()).Start(ctx, weir.StateDir(filepath.Join(dir, "grows")), weir.Interval(followInterval), weir.Parallelism(1),
		weir.OnStart(func(weir.Started) { close(started) }))
	defer func() {
		running.Stop()
		err = errors.Join(err, running.Wait())
	}()
	ended := make(chan error, 1)
	go func() { ended <- running.Wait() }()
	select {
	case <-started:
	case err := <-ended:
		return nil, err
	}
	chunks := make(chan chunk, 1<<16)
	grown := make(chan error, 1)
	go func() { grown <- grow(f, rate, chunks) }()
	took, err = watch(ctx, db, chunks)
	return took, errors.Join(err, <-grown)
}

// grow appends lines at a steady rate.
func grow(f *os.File, rate int64, chunks chan<- chunk) error {
	defer close(chunks)
	began := time.Now()
	var buf []byte
	last := int64(0)
	for tick := range time.Tick(followChunk) {
		since := tick.Sub(began)
		if since > followFor {
			break
		}
		to := int64(since.Seconds() * float64(rate))
		buf = appendLines(buf[:0], last+1, to+1)
		last = to
		if _, err := f.Write(buf); err != nil {
			return err
		}
		chunks <- chunk{last, time.Now()}
	}
	return nil
}

// watch reads the newest number from the table until all chunks are there.
func watch(ctx context.Context, path string, chunks <-chan chunk) (took []time.Duration, err error) {
	db, err := sql.Open("sqlite", path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	st, err := db.PrepareContext(ctx, "SELECT coalesce(max(seq), 0) FROM newest")
	if err != nil {
		return nil, err
	}
	defer st.Close() //nolint:errcheck // db's Close says what matters
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	var seen int64
	for c := range chunks {
		for seen < c.last {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
			if err := st.QueryRowContext(ctx).Scan(&seen); err != nil {
				return nil, err
			}
		}
		took = append(took, time.Since(c.at))
	}
	slices.Sort(took)
	return took, nil
}
