package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirstream/weir"
)

const (
	// longPoll is how long a broker waits for something new before it answers.
	longPoll = 250 * time.Millisecond
	// shortPoll is the same while there are partitions that weren't asked for,
	// because their readers have enough: a broker answers one request of a
	// connection after the other, so that they would wait for the answer as well.
	// It is doubled for as long as no reader goes on.
	shortPoll = 5 * time.Millisecond
	// largeAnswer is the most that one answer should hold. The first partition of a
	// request is answered with a batch at least, however large that is.
	largeAnswer = 8 << 20
)

// fetcher asks one broker for what is new, again and again, each time for all
// partitions that it leads and whose readers can do with more.
type fetcher struct {
	f      *feed
	broker int32
	wake   chan struct{} // a reader has room again, or there is a new tap
	turn   int           // which tap comes first next
	idle   int           // requests since that was so
}

// fetcherOf returns the fetcher of a broker, and starts it if it is new.
func (f *feed) fetcherOf(broker int32) *fetcher {
	f.mu.Lock()
	defer f.mu.Unlock()
	b := f.mu.fetchers[broker]
	if b == nil {
		b = &fetcher{f: f, broker: broker, wake: make(chan struct{}, 1)}
		f.mu.fetchers[broker] = b
		f.wg.Go(b.run)
	}
	return b
}

func (b *fetcher) nudge() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

func (b *fetcher) run() {
	fails := 0
	said := ""
	for b.f.ctx.Err() == nil {
		all, wait := b.choose()
		if len(all) == 0 {
			select {
			case <-b.wake:
				b.idle = 0
			case <-b.f.ctx.Done():
			}
			continue
		}
		err := b.fetch(all, wait)
		if err == nil {
			fails, said = 0, ""
			continue
		}
		err = b.f.c.explain(fmt.Sprintf("fetch from broker %d", b.broker), err)
		for _, a := range all {
			if errors.Is(err, weir.ErrRefused) {
				a.t.fail(err)
			} else { // the leaders may be elsewhere by now: the router finds out
				a.t.astray(noLeader)
			}
		}
		fails++
		if text := err.Error(); fails > 1 && text != said && b.f.ctx.Err() == nil {
			said = text
			waiting(b.f.ctx, text)
		}
		b.f.sleep(retryAfter(fails))
	}
}

// wanted is a tap in a request.
type wanted struct {
	t     *tap
	at    int64
	id    topicID
	term  int32
	alone bool
}

// choose picks the taps to be asked for: one alone, where that is needed to know
// whether there is nothing, and otherwise all that can do with more.
func (b *fetcher) choose() (all []wanted, wait time.Duration) {
	// Before the taps are looked at: one that has room again a moment later must
	// find the channel empty, or nobody would come back for it.
	select {
	case <-b.wake:
		b.idle = 0
	default:
		b.idle = min(b.idle+1, 10)
	}
	share := int(b.f.share.Load())
	taps := b.f.taps()
	full := false
	for i := range taps {
		t := taps[(i+b.turn)%len(taps)]
		t.mu.Lock()
		switch {
		case t.leader != b.broker || t.gone:
		case t.held >= share:
			full = true
		case t.alone > 0:
			one := wanted{t, t.next, t.id, t.term, true}
			t.mu.Unlock()
			return []wanted{one}, 0
		default:
			all = append(all, wanted{t, t.next, t.id, t.term, false})
		}
		t.mu.Unlock()
	}
	b.turn++
	if !full {
		return all, longPoll
	}
	return all, min(shortPoll<<b.idle, longPoll)
}

// fetch makes one request, and hands on what comes.
func (b *fetcher) fetch(all []wanted, wait time.Duration) error {
	req := b.f.request(all, wait)
	raw, err := b.f.cl.Broker(int(b.broker)).Request(b.f.ctx, req)
	if err != nil {
		return err
	}
	resp := raw.(*kmsg.FetchResponse)
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return err
	}
	held := 0
	for i := range resp.Topics {
		for j := range resp.Topics[i].Partitions {
			held += len(resp.Topics[i].Partitions[j].RecordBatches)
		}
	}
	next := 0 // brokers answer in the order of the question, but needn't
	for i := range resp.Topics {
		rt := &resp.Topics[i]
		for j := range rt.Partitions {
			rp := &rt.Partitions[j]
			is := func(a wanted) bool {
				return a.t.partition == rp.Partition && (rt.Topic == a.t.topic || resp.Version >= 13 && rt.TopicID == a.id)
			}
			k := next
			if k == len(all) || !is(all[k]) {
				k = slices.IndexFunc(all, is)
			}
			if k < 0 {
				continue // it wasn't asked for
			}
			next = k + 1
			// Memory is counted by what is in it: a small part of a large answer
			// mustn't keep the whole.
			if 2*len(rp.RecordBatches) < held {
				rp.RecordBatches = slices.Clone(rp.RecordBatches)
			}
			all[k].deliver(rp)
		}
	}
	return nil
}

// request asks for partitions of one broker, outside a session: which partitions
// are asked for changes each time.
func (f *feed) request(all []wanted, wait time.Duration) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.SessionEpoch = int32(wait.Milliseconds()), 1, largeAnswer, -1
	if !f.conf.uncommitted {
		req.IsolationLevel = 1
	}
	share := f.share.Load()
	for _, a := range all {
		i := slices.IndexFunc(req.Topics, func(t kmsg.FetchRequestTopic) bool { return t.Topic == a.t.topic && t.TopicID == a.id })
		if i < 0 {
			i = len(req.Topics)
			rt := kmsg.NewFetchRequestTopic()
			rt.Topic, rt.TopicID = a.t.topic, a.id
			req.Topics = append(req.Topics, rt)
		}
		rp := kmsg.NewFetchRequestTopicPartition()
		rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes, rp.CurrentLeaderEpoch = a.t.partition, a.at, share, a.term
		req.Topics[i].Partitions = append(req.Topics[i].Partitions, rp)
	}
	return req
}

// deliver takes in the answer for one partition.
func (a wanted) deliver(rp *kmsg.FetchResponseTopicPartition) {
	t := a.t
	switch err := kerr.ErrorForCode(rp.ErrorCode); {
	case err == nil:
		a.data(rp)
	case errors.Is(err, kerr.OffsetOutOfRange):
		t.astray(outOfRange)
	case errors.Is(err, kerr.UnknownTopicID), errors.Is(err, kerr.InconsistentTopicID), errors.Is(err, kerr.UnknownTopicOrPartition):
		t.astray(otherTopic)
	case temporary(err):
		t.astray(noLeader)
	default:
		err = t.f.c.explain(fmt.Sprintf("fetch topic %s, partition %d, at offset %d", t.topic, t.partition, a.at), err)
		if !errors.Is(err, weir.ErrRefused) {
			err = waitable{err} // whatever it is, it isn't the input
		}
		t.fail(err)
	}
}

// data takes in records, or that there are none.
func (a wanted) data(rp *kmsg.FetchResponseTopicPartition) {
	t := a.t
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.gone || t.leader < 0 || t.next != a.at || t.id != a.id {
		return // it was moved meanwhile
	}
	t.failed = 0
	news := t.know(rp)
	whole, next, epoch := 0, t.next, t.epoch
	for rest := rp.RecordBatches; ; {
		b, after, ok := cutBatch(rest)
		if !ok {
			break
		}
		if b.last >= next {
			next = b.last + 1
		}
		if b.epoch >= 0 {
			epoch = b.epoch
		}
		if whole == 0 {
			t.unread(b.newest)
		}
		whole += len(rest) - len(after)
		rest = after
	}
	switch visible := t.visible(); {
	case next > t.next:
		t.alone = 0
		t.next, t.epoch = next, epoch
		t.put(&parcel{raw: rp.RecordBatches[:whole:whole], aborted: rp.AbortedTransactions, next: next})
	case visible <= t.next:
		t.alone = 0
		if news {
			t.signal()
		}
	case a.alone && t.alone >= 2 && len(rp.RecordBatches) > 0:
		t.refuse(waitable{fmt.Errorf("topic %s, partition %d: asked for offset %d, the broker sends %d bytes that don't hold it, and offsets go on to %d",
			t.topic, t.partition, t.next, len(rp.RecordBatches), visible)})
	case a.alone && t.alone >= 2:
		// There is nothing behind t.next, twice: what was there is compacted away, or
		// the broker can't get at it. The router finds out which.
		t.leader, t.trouble, t.failed = -1, noRecords, max(t.failed, 1)
		t.begin()
	default:
		t.alone++ // the others may have filled the answer
	}
}

// know takes in where the partition ends. It reports whether that has changed.
func (t *tap) know(rp *kmsg.FetchResponseTopicPartition) bool {
	end, stable := max(rp.HighWatermark, 0), rp.LastStableOffset
	if stable < 0 {
		stable = end
	}
	changed := end != t.end || stable != t.stable
	t.end, t.stable = end, stable
	if rp.LogStartOffset >= 0 {
		t.start = rp.LogStartOffset
	}
	return changed
}

// visible is up to where there are records that can be read.
func (t *tap) visible() int64 {
	if t.f.conf.uncommitted {
		return t.end
	}
	return min(t.stable, t.end)
}

// astray gives the tap to the router.
func (t *tap) astray(why trouble) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.gone || t.leader < 0 {
		return
	}
	t.leader, t.trouble = -1, why
	t.begin()
}

// fetchOnce asks a broker for one partition at an offset, at once.
func (a *ask) fetchOnce(ctx context.Context, broker int32, topic string, id topicID, partition int32, at int64) (*kmsg.FetchResponseTopicPartition, error) {
	f := &feed{}
	f.share.Store(largeShare)
	f.conf.uncommitted = true
	req := f.request([]wanted{{t: &tap{topic: topic, partition: partition}, at: at, id: id, term: -1}}, 0)
	return a.fetchOne(ctx, broker, req)
}

// fetchOne makes a request that is about one partition.
func (a *ask) fetchOne(ctx context.Context, broker int32, req *kmsg.FetchRequest) (*kmsg.FetchResponseTopicPartition, error) {
	raw, err := a.cl.Broker(int(broker)).Request(ctx, req)
	if err != nil {
		return nil, err
	}
	resp := raw.(*kmsg.FetchResponse)
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return nil, err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return nil, fmt.Errorf("the broker's answer isn't about the one partition that it was asked for")
	}
	rp := &resp.Topics[0].Partitions[0]
	return rp, kerr.ErrorForCode(rp.ErrorCode)
}
