package main

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirstream/weir/internal/chaos/trial"
)

// timeToOutput kills workers that have no proxy, and takes the time until a
// reader has the first output that their successors have committed. The dead
// one's transactions are open then, and last a minute.
func (h *harness) timeToOutput(ctx context.Context, l *lab, rounds int) error {
	j, err := h.newJob(ctx, l, kafkaToKafka, idle)
	if err != nil {
		return err
	}
	j.direct, j.interval, j.timeout = true, 100*time.Millisecond, time.Minute
	now, err := j.start(ctx, nil)
	if err != nil {
		return err
	}
	w, err := j.reader(ctx, now)
	if err != nil {
		return err
	}
	defer w.close()
	for range rounds {
		if err := w.await(ctx, now, 0); err != nil {
			return err
		}
		now.pause(ctx, 150*time.Millisecond+upTo(j.rng, 200*time.Millisecond))
		s, err := readStore(j.state)
		if err != nil {
			return err
		}
		died := time.Now()
		_, hit := now.kill() // without a proxy it isn't known what it was at
		if err := now.close(); err != nil {
			return err
		}
		if !hit {
			return trial.Failed("job %d (%s), life %d ended with exit code %d: see %s", j.jobs, j.recipe.name, j.life, exitCode(now.err), now.said.Name())
		}
		if now, err = j.start(ctx, nil); err != nil {
			return err
		}
		if err := w.await(ctx, now, s.incarnation()); err != nil {
			return err
		}
		h.recovery = append(h.recovery, w.first(s.incarnation()).Sub(died))
		h.rounds++
		h.notes["kills of a worker without a proxy, whose phase isn't known"]++
	}
	now.kill()
	if err := now.close(); err != nil {
		return err
	}
	j.direct = false
	return j.close(ctx)
}

// watcher reads a job's topics as they grow, and knows when the first output of
// each incarnation was there.
type watcher struct {
	cl   *kgo.Client
	done chan struct{}
	stop context.CancelFunc

	mu      sync.Mutex
	outputs map[transaction]time.Time // when the first output of it came
	by      map[transaction]int64     // the incarnation that its control record names
}

func (j *job) reader(ctx context.Context, now *life) (*watcher, error) {
	// The job makes its control topic itself.
	err := until(ctx, "until the job had a control topic", 20*time.Millisecond, func() (bool, error) {
		if now.ended() {
			return false, trial.Failed("it ended with exit code %d: see %s", exitCode(now.err), now.said.Name())
		}
		d, err := j.lab.adm.ListTopics(ctx, j.controlTopic())
		return err == nil && d.Error() == nil, nil
	})
	if err != nil {
		return nil, err
	}
	w := &watcher{done: make(chan struct{}), outputs: map[transaction]time.Time{}, by: map[transaction]int64{}}
	w.cl, err = kgo.NewClient(kgo.SeedBrokers(j.lab.Brokers()...), kgo.ConsumeTopics(j.topic("out"), j.controlTopic()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.FetchMaxWait(100*time.Millisecond), kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return nil, err
	}
	reading, stop := context.WithCancel(ctx)
	w.stop = stop
	go func() {
		defer close(w.done)
		for reading.Err() == nil {
			w.take(w.cl.PollFetches(reading), j.controlTopic())
		}
	}()
	return w, nil
}

func (w *watcher) take(fs kgo.Fetches, control string) {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	fs.EachRecord(func(r *kgo.Record) {
		t := transaction{r.ProducerID, r.ProducerEpoch}
		if r.Topic == control {
			var c struct{ Incarnation int64 }
			_ = json.Unmarshal(r.Value, &c) // the job's check will tell
			w.by[t] = c.Incarnation
		} else if w.outputs[t].IsZero() {
			w.outputs[t] = now
		}
	})
}

// first is when the first output of an incarnation newer than one was there; zero:
// it isn't yet.
func (w *watcher) first(than int64) (first time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for t, at := range w.outputs {
		if w.by[t] > than && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first
}

// await waits until there is an output of an incarnation newer than one, which l
// is.
func (w *watcher) await(ctx context.Context, l *life, than int64) error {
	return until(ctx, "until a new output was there: see "+l.said.Name(), 2*time.Millisecond, func() (bool, error) {
		if l.ended() {
			return false, trial.Failed("it ended with exit code %d: see %s", exitCode(l.err), l.said.Name())
		}
		return !w.first(than).IsZero(), nil
	})
}

func (w *watcher) close() {
	w.stop()
	<-w.done
	w.cl.Close()
}
