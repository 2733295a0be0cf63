package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirstream/weir/internal/chaos/trial"
	"github.com/weirstream/weir/internal/kafkalab"
)

// controls are runs that must be found wrong: otherwise the others say nothing.
func (h *harness) controls(ctx context.Context, l *lab, rounds int) error {
	for range rounds {
		if err := h.withoutTransactions(ctx, l); err != nil {
			return fmt.Errorf("at least once: %w", err)
		}
		if err := h.altered(ctx, l); err != nil {
			return fmt.Errorf("altered: %w", err)
		}
	}
	return nil
}

// withoutTransactions kills an at-least-once job each time it has produced, and
// before its checkpoint: readers see counts again.
func (h *harness) withoutTransactions(ctx context.Context, l *lab) error {
	r := kafkaToKafka
	r.name, r.atLeast = "Kafka to Kafka, at least once", true
	j, err := h.newJob(ctx, l, r, brisk)
	if err != nil {
		return err
	}
	j.interval = 300 * time.Millisecond
	for range 6 {
		now, err := j.start(ctx, nil)
		if err != nil {
			return err
		}
		m := moment{what: "Produce", answer: true, n: 1 + j.rng.IntN(3)}
		hit := false
		now.at(ctx, m, func() { _, hit = now.kill() })
		if err := errors.Join(now.close(), ctx.Err()); err != nil {
			return err
		}
		if !hit {
			return trial.Failed("job %d, life %d ended with exit code %d: see %s", j.jobs, j.life, exitCode(now.err), now.said.Name())
		}
	}
	v, err := j.finished(ctx)
	if err != nil {
		return err
	}
	if v.dup == 0 || v.lost > 0 || v.changed > 0 {
		return trial.Failed("a job without transactions, killed 6 times: %d lost, %d duplicated, %d changed; it must have repeats, and nothing else:%s", v.lost, v.dup, v.changed, v.list())
	}
	h.notes["repeats found in the output of a job without transactions, which had to have some"] += v.dup
	return j.remove(ctx)
}

// altered changes the output of a job that is right by hand, in three ways, and
// sees that each is found.
func (h *harness) altered(ctx context.Context, l *lab) error {
	j, err := h.newJob(ctx, l, kafkaToKafka, brisk)
	if err != nil {
		return err
	}
	now, err := j.start(ctx, nil)
	if err != nil {
		return err
	}
	if err := j.progress(ctx, now, 5); err != nil {
		return err
	}
	now.kill()
	if err := now.close(); err != nil {
		return err
	}
	v, err := j.finished(ctx)
	if err != nil {
		return err
	}
	if v.wrong() > 0 {
		return j.accept(ctx, v)
	}
	recs, err := kcat(ctx, l.Brokers(), j.topic("out"))
	if err != nil {
		return err
	}
	one := recs[j.rng.IntN(len(recs))]
	out, err := updates([]kafkalab.Record{one})
	if err != nil {
		return err
	}
	for _, alter := range []struct {
		what  string
		do    func() error
		found func(verdict) bool
	}{
		{"repeated", func() error { return j.put(ctx, one, string(one.Value)) }, func(v verdict) bool { return v.dup > 0 }},
		{"changed", func() error {
			return j.put(ctx, one, fmt.Sprintf(`{"ad_id":%q,"minute":%q,"clicks":%d}`, out[0].ad, out[0].minute, out[0].clicks+1000))
		}, func(v verdict) bool { return v.changed > 0 }},
		{"lost", func() error { return j.forget(ctx) }, func(v verdict) bool { return v.lost > 0 }},
	} {
		if err := alter.do(); err != nil {
			return err
		}
		v, err := j.check(ctx)
		if err != nil {
			return err
		}
		if !alter.found(v) {
			return trial.Failed("a record was %s by hand, and not found: %d lost, %d duplicated, %d changed", alter.what, v.lost, v.dup, v.changed)
		}
		h.notes["records "+alter.what+" by hand, and found"]++
	}
	return j.remove(ctx)
}

// put appends a record to the partition of the output that another one is in.
func (j *job) put(ctx context.Context, where kafkalab.Record, value string) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(j.lab.Brokers()...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		return err
	}
	defer cl.Close()
	r := &kgo.Record{Topic: j.topic("out"), Partition: where.Partition, Key: where.Key, Value: []byte(value)}
	return cl.ProduceSync(ctx, r).FirstErr()
}

// forget deletes the whole output.
func (j *job) forget(ctx context.Context) error {
	ends, err := j.lab.adm.ListEndOffsets(ctx, j.topic("out"))
	if err != nil {
		return err
	}
	upTo := kadm.Offsets{}
	ends.Each(func(o kadm.ListedOffset) { upTo.AddOffset(o.Topic, o.Partition, o.Offset, -1) })
	r, err := j.lab.adm.DeleteRecords(ctx, upTo)
	if err != nil {
		return err
	}
	return r.Error()
}
