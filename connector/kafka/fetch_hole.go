package kafka

import (
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// hole finds out why nothing comes from an offset on that there should be something
// behind. Compaction may have removed all of it. But a broker answers the same while
// it can't get at what it has: its tiered storage didn't answer in time, for example.
// The tap goes on behind the hole only if it is proven to be one. Otherwise it stays
// with the router, which asks again, and the error says what is waited for.
func (f *feed) hole(l look) error {
	t := l.t
	t.mu.Lock()
	at, id := t.next, t.id
	t.mu.Unlock()
	rp, err := f.probe(l, id, at)
	if _, answered := errors.AsType[*kerr.Error](err); answered {
		f.readOn(l) // its fetcher meets the same, and sees to it
		return nil
	}
	if err != nil {
		return f.c.explain(fmt.Sprintf("fetch topic %s, partition %d, at offset %d", t.topic, t.partition, at), err)
	}
	visible := t.learn(rp)
	if len(rp.RecordBatches) > 0 || visible <= at {
		f.readOn(l)
		return nil
	}
	what := fmt.Sprintf("topic %s, partition %d: broker %d sends no records from offset %d on, although offsets go on to %d", t.topic, t.partition, l.leader, at, visible)
	compacted, err := f.compacts(t.topic)
	switch {
	case err != nil:
		return fmt.Errorf("%s; whether they were compacted away can't be told (it takes the right to DescribeConfigs of the topic), so they are asked for again: %w", what, err)
	case !compacted:
		return fmt.Errorf("%s; the topic isn't compacted, so they are asked for again: look into the broker's log, and whether its tiered storage answers", what)
	}
	last, err := f.probe(l, id, visible-1)
	switch {
	case err != nil:
		return fmt.Errorf("%s; the last one of these: %w", what, err)
	case len(last.RecordBatches) > 0, t.learn(last) < visible:
		return fmt.Errorf("%s; it has the last one of these, so they are asked for again: look into the broker's log", what)
	}
	t.mu.Lock()
	if !t.gone {
		// Who wrote what was in the hole isn't known: with the epoch of what is before
		// it, another leader would seem to have less than was read.
		t.alone, t.failed, t.next, t.epoch = 0, 0, visible, noEpoch
		t.put(&parcel{next: visible})
	}
	t.mu.Unlock()
	f.readOn(l)
	return nil
}

// readOn gives a tap that was looked at to the leader's fetcher.
func (f *feed) readOn(l look) {
	l.t.mu.Lock()
	defer l.t.mu.Unlock()
	if !l.t.gone {
		l.t.handOver(l.leader, l.term)
	}
}

// learn takes in where the partition ends, and returns up to where it can be read.
func (t *tap) learn(rp *kmsg.FetchResponseTopicPartition) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.know(rp) {
		t.signal()
	}
	return t.visible()
}

// probe asks the leader for one partition at an offset, as its fetcher does.
func (f *feed) probe(l look, id topicID, at int64) (*kmsg.FetchResponseTopicPartition, error) {
	return f.fetchOne(f.ctx, l.leader, f.request([]wanted{{t: l.t, at: at, id: id, term: l.term, alone: true}}, 0))
}

// compacts reports whether a topic is compacted. It is asked each time: who waits
// for it may change that.
func (f *feed) compacts(topic string) (bool, error) {
	all, err := f.adm.DescribeTopicConfigs(f.ctx, topic)
	if err != nil {
		return false, err
	}
	for _, rc := range all {
		if rc.Err != nil {
			return false, rc.Err
		}
		for _, c := range rc.Configs {
			if rc.Name == topic && c.Key == "cleanup.policy" && c.Value != nil {
				return slices.Contains(policies(*c.Value), "compact"), nil
			}
		}
	}
	return false, errors.New("the broker doesn't tell the topic's cleanup.policy")
}
