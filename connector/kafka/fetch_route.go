package kafka

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirstream/weir"
)

// mostMisses is how often in a row a topic must be missing before it counts as
// deleted: while a broker starts it doesn't know its topics, or not all.
const mostMisses = 10

// route gives taps to the fetchers of their leaders, and finds out what is wrong
// with a partition that couldn't be read.
func (f *feed) route() {
	for {
		select {
		case <-f.stray:
		case <-f.ctx.Done():
			return
		}
		said := ""
		for n := 0; ; n++ {
			taps := f.strays()
			if len(taps) == 0 {
				break
			}
			if failed(taps) && !f.sleep(retryAfter(n)) {
				return
			}
			err := f.settle(taps)
			if err != nil && n > 1 && err.Error() != said && f.ctx.Err() == nil {
				said = err.Error()
				waiting(f.ctx, said)
			}
		}
	}
}

// strays are the taps that no fetcher has.
func (f *feed) strays() []*tap {
	return slices.DeleteFunc(f.taps(), func(t *tap) bool {
		t.mu.Lock()
		defer t.mu.Unlock()
		return t.leader >= 0 || t.gone
	})
}

// failed counts a failure of each tap, and reports whether it is the second one in
// a row of some.
func failed(taps []*tap) (again bool) {
	for _, t := range taps {
		t.mu.Lock()
		t.failed++
		again = again || t.failed > 1
		t.mu.Unlock()
	}
	return again
}

// settle looks at the taps' topics once. The error says why some of them must wait.
func (f *feed) settle(taps []*tap) error {
	var names []string
	for _, t := range taps {
		names = append(names, t.topic)
	}
	slices.Sort(names)
	resp, err := f.metadata(f.ctx, slices.Compact(names))
	if err = f.c.explain("look for the leaders of "+f.conf.topics.String(), err); err != nil {
		if errors.Is(err, weir.ErrRefused) {
			for _, t := range taps {
				t.fail(err)
			}
		}
		return err
	}
	var wait []error
	var changed []look
	for _, t := range taps {
		l, err := f.place(t, resp)
		switch {
		case err != nil:
		case l.why == noRecords:
			err = f.hole(l)
		case l.t != nil:
			changed = append(changed, l)
		}
		if err != nil {
			wait = append(wait, err)
		}
	}
	if len(changed) > 0 {
		if err := f.c.explain("look at what there is of "+f.conf.topics.String(), f.reconsider(changed)); err != nil {
			wait = append(wait, err)
		}
	}
	if len(wait) > 0 {
		return wait[0]
	}
	return nil
}

// look is a tap whose partition has to be looked at before it is read on, and who
// leads that.
type look struct {
	t            *tap
	leader, term int32
	why          trouble
}

// place gives a tap to the fetcher of its partition's leader, or says what has to be
// looked at first.
func (f *feed) place(t *tap, resp *kmsg.MetadataResponse) (look, error) {
	rt, rp, err := partitionOf(resp, t.topic, t.partition)
	t.mu.Lock()
	defer t.mu.Unlock()
	if !errors.Is(err, kerr.UnknownTopicOrPartition) {
		t.missed = 0
	} else {
		t.missed++
	}
	switch {
	case t.missed > mostMisses:
		t.refuse(fmt.Errorf("%w: topic %s, partition %d: it no longer exists on kafka cluster %s; bring it back, what was read of it couldn't be told from what wasn't",
			weir.ErrRefused, t.topic, t.partition, f.c))
		return look{}, nil
	case t.missed > 0:
		return look{}, fmt.Errorf("topic %s, partition %d: it isn't there on kafka cluster %s", t.topic, t.partition, f.c)
	case err != nil:
		err = f.c.explain(fmt.Sprintf("look for topic %s, partition %d", t.topic, t.partition), err)
		if errors.Is(err, weir.ErrRefused) {
			t.refuse(err)
			return look{}, nil
		}
		return look{}, err
	case rt.TopicID != t.id:
		return look{t, rp.Leader, rp.LeaderEpoch, otherTopic}, nil
	case rp.Leader < 0:
		return look{}, fmt.Errorf("topic %s, partition %d: it has no leader: its brokers are away", t.topic, t.partition)
	case t.trouble == outOfRange, t.trouble == newLeader:
		return look{t, rp.Leader, rp.LeaderEpoch, t.trouble}, nil
	case t.epoch >= 0 && rp.LeaderEpoch != t.epoch && rp.LeaderEpoch != t.term:
		// Another leader than the one that wrote what was read last may not have it.
		// That is asked until it is answered, whatever else happens.
		t.trouble = newLeader
		return look{t, rp.Leader, rp.LeaderEpoch, t.trouble}, nil
	case t.trouble == noRecords:
		return look{t, rp.Leader, rp.LeaderEpoch, t.trouble}, nil
	}
	t.handOver(rp.Leader, rp.LeaderEpoch)
	return look{}, nil
}

// handOver gives the tap to the fetcher of a broker. It is called with the lock.
func (t *tap) handOver(leader, term int32) {
	t.leader, t.term, t.trouble = leader, term, noLeader
	t.f.fetcherOf(leader).nudge()
}

// partitionOf finds a partition in metadata.
func partitionOf(resp *kmsg.MetadataResponse, topic string, partition int32) (*kmsg.MetadataResponseTopic, *kmsg.MetadataResponseTopicPartition, error) {
	for i := range resp.Topics {
		rt := &resp.Topics[i]
		if deref(rt.Topic) != topic {
			continue
		}
		if err := kerr.ErrorForCode(rt.ErrorCode); err != nil {
			return nil, nil, err
		}
		for j := range rt.Partitions {
			if rp := &rt.Partitions[j]; rp.Partition == partition {
				return rt, rp, nil
			}
		}
	}
	return nil, nil, kerr.UnknownTopicOrPartition
}

// reconsider compares where taps stand with what there is of their partitions:
// those whose position is out of range, whose topic is another one, or whose leader
// is, which may not have all that was read.
func (f *feed) reconsider(looks []look) error {
	var topics []string
	for _, l := range looks {
		topics = append(topics, l.t.topic)
	}
	slices.Sort(topics)
	all, bad, err := f.ask.look(f.ctx, slices.Compact(topics))
	if err != nil {
		return err
	}
	ends, wait := f.written(looks)
	for _, k := range looks {
		t, split := k.t, splitName(k.t.topic, k.t.partition)
		b, ok := all[split]
		if !ok {
			// It has gone meanwhile, or can't be told of: its trouble stays.
			wait = append(wait, cmp.Or(bad[split], bad[""], error(kerr.UnknownTopicOrPartition)))
			continue
		}
		l, lost := t.lossOf(b, ends)
		if _, compared := ends[t]; !lost && !compared {
			continue // written says why
		}
		t.mu.Lock()
		t.trouble, t.failed, t.term = noLeader, 0, k.term
		switch {
		case lost && !f.conf.acceptLoss:
			t.refuse(l.err())
		case lost:
			t.id, t.next, t.epoch = b.id, l.goOn(), noEpoch
			t.put(&parcel{next: t.next, lost: &l, id: b.id})
		}
		t.mu.Unlock()
		if lost && f.conf.acceptLoss {
			l.accept(f.ctx)
		}
	}
	if len(wait) > 0 {
		return wait[0]
	}
	return nil
}

// lossOf compares the tap with what there is. ends are those of written.
func (t *tap) lossOf(b bounds, ends map[*tap]int64) (loss, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l, lost := lossOf(t.topic, t.partition, position{cluster: b.cluster, topic: t.id, offset: t.next, end: noEnd, epoch: noEpoch}, b)
	if at, ok := ends[t]; ok && !lost && at < t.next {
		return loss{topic: t.topic, partition: t.partition, kind: truncated, at: t.next, start: b.start, end: at}, true
	}
	return l, lost
}
