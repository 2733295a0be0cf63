package cli

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weirstream/weir"
)

// printer writes what a person wants to know of a run. Control's goroutine
// calls started, committed, waiting and restarting, the verb's the rest.
type printer struct {
	w   io.Writer
	now func() time.Time
	mu  struct {
		sync.Mutex
		start   weir.Started
		last    *weir.Checkpoint
		records int64
		at      time.Time
		down    *weir.Restart // since a failure and until the next start
		wait    waiting
	}
}

func (p *printer) started(s weir.Started) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.start, p.mu.records, p.mu.at = s, s.Records, p.now()
	p.mu.down, p.mu.wait = nil, waiting{}
	if !s.Restored {
		fmt.Fprintf(p.w, "started for the first time, incarnation %d\n", s.Incarnation)
		return
	}
	fmt.Fprintf(p.w, "restored checkpoint %d (epoch %d: %s records read, %s state entries) in %s, incarnation %d\n",
		s.Checkpoint.Slot, s.Epoch, count(s.Records), count(s.Keys), short(s.Took), s.Incarnation)
}

func (p *printer) committed(c weir.Checkpoint) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.last = &c
}

// waiting says what a start or a commit waits for: once, and for as long as it
// stays the same again at growing distances.
func (p *printer) waiting(what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w, now := &p.mu.wait, p.now()
	switch {
	case w.what != what || now.Sub(w.told) > 2*longestSilence: // it had come to an end meanwhile
		*w = waiting{what: what, since: now, silence: firstSilence}
		fmt.Fprintf(p.w, "waiting: %s\n", what)
	case now.Sub(w.said) < w.silence:
		w.told = now
		return
	default:
		w.silence = min(2*w.silence, longestSilence)
		fmt.Fprintf(p.w, "waiting for %s now: %s\n", short(now.Sub(w.since)), what)
	}
	w.said, w.told = now, now
}

// waiting is what is waited for.
type waiting struct {
	what        string
	since, told time.Time // the first time and the last
	said        time.Time // when it was printed last
	silence     time.Duration
}

const (
	firstSilence   = 10 * time.Second
	longestSilence = 5 * time.Minute
)

func (p *printer) restarting(r weir.Restart) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.down = &r
	fmt.Fprintf(p.w, "failed (%s), restart %d in %s: %v\n", r.Reason, r.Attempt, short(r.Wait), r.Err)
}

// progress prints one line: speed, position, watermark, late records, the last
// checkpoint.
func (p *printer) progress(pr weir.Progress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.at.IsZero() || len(pr.Splits) == 0 {
		return
	}
	now := p.now()
	if r := p.mu.down; r != nil { // what the failed start has read doesn't count
		fmt.Fprintf(p.w, "%s  restarting (%s), attempt %d  %s\n", now.UTC().Format("15:04:05"), r.Reason, r.Attempt, p.checkpoint(now))
		return
	}
	speed := float64(pr.Records-p.mu.records) / now.Sub(p.mu.at).Seconds()
	p.mu.records, p.mu.at = max(p.mu.records, pr.Records), now
	fmt.Fprintf(p.w, "%s  %s rec/s  %s  watermark %s  late %s  %s\n", now.UTC().Format("15:04:05"),
		count(int64(max(0, speed))), position(pr), watermark(pr, now), late(pr.Late), p.checkpoint(now))
}

func (p *printer) checkpoint(now time.Time) string {
	c := p.mu.last
	if c == nil && p.mu.start.Restored {
		return fmt.Sprintf("checkpoint %d: restored", p.mu.start.Checkpoint.Slot)
	}
	if c == nil {
		return "no checkpoint yet"
	}
	return fmt.Sprintf("checkpoint %d: %s ago, %s, took %s", c.ID.Slot, short(now.Sub(c.At)), size(c.Bytes), short(c.Took))
}

// position is a percentage where the sizes are known, else a count of records.
func position(pr weir.Progress) string {
	var done, total int64
	for _, s := range pr.Splits {
		if s.Status.Total <= 0 {
			return count(pr.Records) + " records"
		}
		done, total = done+s.Status.Done, total+s.Status.Total
	}
	return fmt.Sprintf("%s records, %d %%", count(pr.Records), done*100/total)
}

// watermark is the lowest of the splits that have not ended, and which split
// holds it back, once it has stood still for a while.
func watermark(pr weir.Progress, now time.Time) string {
	held, ok := heldBy(pr.Splits)
	if !ok {
		return resting(pr.Splits)
	}
	if still := stalled(held, now); still >= noteworthy {
		return fmt.Sprintf("%s (held back for %s by split %s of %s)", clockTime(held.Watermark), ago(still), held.Split, held.Source)
	}
	return clockTime(held.Watermark)
}

func late(by map[string]int64) string {
	var parts []string
	for _, step := range slices.Sorted(maps.Keys(by)) {
		if by[step] > 0 {
			parts = append(parts, fmt.Sprintf("%s (%s)", count(by[step]), step))
		}
	}
	if len(parts) == 0 {
		return "0"
	}
	return strings.Join(parts, ", ")
}

// dead counts the records that were set aside, if there are any.
func dead(by map[string]map[string]int64) string {
	var n int64
	for _, kinds := range by {
		for _, of := range kinds {
			n += of
		}
	}
	if n == 0 {
		return ""
	}
	return ", dead " + count(n)
}

// ended prints the last line of a run that ended well.
func (p *printer) ended(pr weir.Progress, took time.Duration, stopped bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.mu.last
	switch {
	case c == nil && p.mu.start.Incarnation == 0 && stopped:
		fmt.Fprintln(p.w, "stopped before it had started: no checkpoint was changed")
	case c == nil && p.mu.start.Restored && stopped:
		fmt.Fprintf(p.w, "stopped without a new checkpoint: a later run goes on from checkpoint %d (%s records read)\n",
			p.mu.start.Checkpoint.Slot, count(p.mu.start.Records))
	case c == nil && p.mu.start.Restored:
		fmt.Fprintln(p.w, "nothing to do: the input was read to its end by an earlier run")
	case c == nil:
		fmt.Fprintln(p.w, "ended without a checkpoint")
	case c.Finished:
		fmt.Fprintf(p.w, "finished: %s records in %s, late %s%s, checkpoint %d (%s)\n",
			count(c.Records), short(took), late(pr.Late), dead(pr.DeadLetters), c.ID.Slot, size(c.Bytes))
	default:
		why := "ended"
		if stopped {
			why = "stopped"
		}
		fmt.Fprintf(p.w, "%s: %s records in %s, late %s%s, checkpoint %d: a later run goes on there\n",
			why, count(c.Records), short(took), late(pr.Late), dead(pr.DeadLetters), c.ID.Slot)
	}
}

func short(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return d.Round(time.Microsecond).String()
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	}
	return d.Round(10 * time.Millisecond).String()
}

func size(n int64) string {
	switch {
	case n < 1<<10:
		return fmt.Sprintf("%d B", n)
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	if n < 1<<30 {
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.2f GiB", float64(n)/(1<<30))
}
