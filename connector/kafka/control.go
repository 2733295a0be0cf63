package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirstream/weir"
)

// controlSuffix is how the names of control topics end.
const controlSuffix = ".ckpt"

// controlTopic is where the records with the ids of a job's checkpoints are.
type controlTopic struct {
	name   string
	id     topicID
	leader int32 // of its partition, when it was last asked for; or -1
}

// controlName returns the name of a job's control topic, or says why there can be
// none.
func (c *Cluster) controlName(job string) (string, error) {
	name := c.prefix + job + controlSuffix
	if err := checkTopic(name); err != nil {
		return "", fmt.Errorf("%w: the job's control topic on Kafka gets its name from it, and can't: %w: give the job another name", weir.ErrRefused, err)
	}
	return name, nil
}

// txids are the transactional ids of a job's worker.
func (c *Cluster) txids(job string) [2]string {
	worker := c.prefix + job + "-0" // one worker, as long as one process runs a job
	return [2]string{worker + "-a", worker + "-b"}
}

// controlSettings are those of a control topic that is made: the last record of a
// run is kept for good, and reading it takes one fetch.
func controlSettings() map[string]*string {
	set := map[string]*string{}
	for name, value := range map[string]string{
		"cleanup.policy":                 "compact",
		"segment.bytes":                  "1048576",
		"segment.ms":                     "3600000",
		"max.compaction.lag.ms":          "3600000",
		"min.cleanable.dirty.ratio":      "0.1",
		"unclean.leader.election.enable": "false",
	} {
		set[name] = &value
	}
	return set
}

// findControl looks at the control topic, or makes it. nil: there is none.
func (o *outputs) findControl(ctx context.Context, name string, create bool) (*controlTopic, error) {
	look := o.describeAll
	if create {
		look = o.describe
	}
	found, err := look(ctx, []string{name})
	if err != nil {
		return nil, err
	}
	d, ok := found[name]
	if !ok {
		if !create {
			return nil, nil
		}
		if err := o.create(ctx, creation{1, -1, controlSettings()}, name); err != nil {
			return nil, err
		}
		if found, err = o.await(ctx, []string{name}); err != nil {
			return nil, err
		}
		d = found[name]
	}
	if n := len(d.Partitions); n != 1 {
		return nil, fmt.Errorf("%w: the control topic %s has %d partitions, and must have 1: it wasn't made by this job; give the job another name or the cluster a Prefix",
			weir.ErrRefused, name, n)
	}
	set, err := o.settings(ctx, []string{name})
	if err != nil {
		return nil, err
	}
	if p := policies(set[name]["cleanup.policy"]); !slices.Equal(p, []string{"compact"}) {
		return nil, fmt.Errorf("%w: the control topic %s has cleanup.policy=%s, which lets its records, the job's last checkpoint, be deleted: set it to compact "+
			"(kafka-configs.sh --bootstrap-server HOST:PORT --alter --entity-type topics --entity-name %[2]s --add-config cleanup.policy=compact)",
			weir.ErrRefused, name, set[name]["cleanup.policy"])
	}
	return &controlTopic{name, topicID(d.ID), d.Partitions[0].Leader}, nil
}

// lastRecords are the last committed control records of one run, and of all.
type lastRecords struct{ own, newest *controlRecord }

// lastControl reads the last committed records. It works on raw fetches, because
// only they say how far a fetch got when it holds no record: aborted ones, markers,
// and the holes that compaction leaves. It reads forward from a guess near the end,
// and from ever further back.
func (o *outputs) lastControl(ctx context.Context, t *controlTopic, uuid string) (lastRecords, error) {
	start, end, err := o.controlBounds(ctx, t)
	if err != nil {
		return lastRecords{}, err
	}
	return o.lastFrom(ctx, t, uuid, start, end)
}

// lastBefore is lastControl of what stands before an offset that is known to be
// there: a leader that hasn't come so far has no answer.
func (o *outputs) lastBefore(ctx context.Context, t *controlTopic, uuid string, end int64) (lastRecords, error) {
	start, _, err := o.controlBounds(ctx, t)
	if err != nil {
		return lastRecords{}, err
	}
	t.leader = -1 // the one that told of the record is asked
	return o.lastFrom(ctx, t, uuid, min(start, end), end)
}

func (o *outputs) lastFrom(ctx context.Context, t *controlTopic, uuid string, start, end int64) (lastRecords, error) {
	for back := int64(16); ; back *= 16 {
		from := max(start, end-back)
		last, err := o.readControl(ctx, t, uuid, from, end)
		if err != nil || last.own != nil || from == start {
			return last, err
		}
	}
}

// controlBounds returns where the topic starts and where its last stable offset is.
func (o *outputs) controlBounds(ctx context.Context, t *controlTopic) (start, end int64, err error) {
	err = o.lagging(ctx, "list the offsets of "+t.name, func() error {
		if start, err = offsetIn(t.name)(o.adm.ListStartOffsets(ctx, t.name)); err == nil {
			end, err = offsetIn(t.name)(o.adm.ListCommittedOffsets(ctx, t.name))
		}
		return err
	})
	return start, end, err
}

// offsetIn takes a topic's only offset out of an answer.
func offsetIn(topic string) func(kadm.ListedOffsets, error) (int64, error) {
	return func(all kadm.ListedOffsets, err error) (int64, error) {
		if err != nil {
			return 0, err
		}
		at, ok := all.Lookup(topic, 0)
		if !ok {
			return 0, kerr.LeaderNotAvailable // the answer leaves it out
		}
		return at.Offset, at.Err
	}
}

// fruitless is how often a fetch may bring nothing, and how long is waited behind it.
const (
	fruitless     = 200
	fruitlessWait = 10 * time.Millisecond
)

// readControl reads the topic from an offset to its end.
func (o *outputs) readControl(ctx context.Context, t *controlTopic, uuid string, from, end int64) (last lastRecords, err error) {
	idle := 0
	for next := from; next < end; { // a fetch ends with its segment
		rp, err := o.fetchControl(ctx, t, next)
		switch {
		case errors.Is(err, kerr.OffsetOutOfRange):
			return last, waitable{fmt.Errorf("read %s at offset %d: %w: it is being cleaned", t.name, next, err)}
		case err != nil && (!temporary(err) || idle >= fruitless):
			return last, o.c.explainKnown(fmt.Sprintf("read %s at offset %d", t.name, next), err)
		case err == nil:
			p, n := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{Offset: next, IsolationLevel: kgo.ReadCommitted(), Topic: t.name},
				rp, kgo.DefaultDecompressor(), nil)
			if p.Err != nil {
				return last, fmt.Errorf("read %s at offset %d: %w", t.name, next, p.Err)
			}
			if err := last.take(t, uuid, end, p.Records); err != nil {
				return last, err
			}
			if n > next {
				next, idle = n, 0
				continue
			}
		}
		t.leader = -1 // it may be another one by now
		if idle++; idle > fruitless {
			return last, waitable{fmt.Errorf("read %s at offset %d: nothing comes, though it ends at %d", t.name, next, end)}
		}
		if err := o.pause(ctx, fruitlessWait); err != nil {
			return last, err
		}
	}
	return last, nil
}

// take keeps the last of the records before an offset.
func (l *lastRecords) take(t *controlTopic, uuid string, end int64, records []*kgo.Record) error {
	for _, r := range records {
		if r.Offset >= end {
			break
		}
		c, err := parseControl(r.Key, r.Value)
		if err != nil {
			return fmt.Errorf("%w: the record at offset %d of the control topic %s isn't one: %w: somebody else has written to the topic; give the job another name or the cluster a Prefix, or delete the topic and start over with --start-over (StartOver)",
				weir.ErrRefused, r.Offset, t.name, err)
		}
		c.offset = r.Offset
		l.newest = c
		if c.UUID == uuid {
			l.own = c
		}
	}
	return nil
}

// fetchControl asks the topic's leader once, outside of any session.
func (o *outputs) fetchControl(ctx context.Context, t *controlTopic, at int64) (*kmsg.FetchResponseTopicPartition, error) {
	got, err := o.askLeader(ctx, t, at)
	if err != nil {
		t.leader = -1 // it may be another one by now
	}
	return got, err
}

func (o *outputs) askLeader(ctx context.Context, t *controlTopic, at int64) (*kmsg.FetchResponseTopicPartition, error) {
	if t.leader < 0 {
		found, err := o.adm.ListTopics(ctx, t.name)
		if err != nil {
			return nil, err
		}
		p, ok := found[t.name].Partitions[0]
		if err := errors.Join(found[t.name].Err, p.Err); err != nil {
			return nil, err
		}
		if !ok || p.Leader < 0 {
			return nil, kerr.LeaderNotAvailable
		}
		t.leader = p.Leader
	}
	req := kmsg.NewPtrFetchRequest()
	req.MaxBytes, req.IsolationLevel, req.MaxWaitMillis, req.SessionEpoch = 8<<20, 1, 0, -1
	rt := kmsg.NewFetchRequestTopic()
	rt.Topic, rt.TopicID = t.name, t.id
	rp := kmsg.NewFetchRequestTopicPartition()
	rp.FetchOffset, rp.PartitionMaxBytes, rp.CurrentLeaderEpoch = at, 8<<20, -1
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(ctx, o.cl.Broker(int(t.leader)))
	if err != nil {
		return nil, err
	}
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return nil, err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return nil, errors.New("the answer isn't about the one partition that was asked for")
	}
	got := &resp.Topics[0].Partitions[0]
	return got, kerr.ErrorForCode(got.ErrorCode)
}

// set returns the partitions of topics as a set, of those that exist.
func set(found map[string]kadm.TopicDetail) kadm.TopicsSet {
	out := kadm.TopicsSet{}
	for name, d := range found {
		for p := range d.Partitions {
			out.Add(name, p)
		}
	}
	return out
}
