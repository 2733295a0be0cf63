package kafka

import (
	"fmt"
	"math"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// written asks up to which offset a log holds what was written under the leader
// that a tap has last read from: beyond that, what was read isn't there any more.
// Taps that the leader doesn't answer for are left out, and wait says why.
func (f *feed) written(looks []look) (ends map[*tap]int64, wait []error) {
	ends = map[*tap]int64{}
	for rest := looks; len(rest) > 0; {
		var now []look
		var req *kmsg.OffsetForLeaderEpochRequest
		req, now, rest = epochRequest(rest, ends)
		if len(now) == 0 {
			continue
		}
		raw, err := f.cl.Broker(int(now[0].leader)).Request(f.ctx, req)
		for _, l := range now {
			end, err := int64(0), err
			if err == nil {
				end, err = writtenIn(raw.(*kmsg.OffsetForLeaderEpochResponse), l.t)
			}
			if err != nil {
				wait = append(wait, fmt.Errorf("topic %s, partition %d: how far its log holds what was read: %w", l.t.topic, l.t.partition, err))
				continue
			}
			ends[l.t] = end
		}
	}
	return ends, wait
}

// epochRequest asks one leader for as many taps as it can: now. Those of which
// nothing could be missing go into ends.
func epochRequest(looks []look, ends map[*tap]int64) (req *kmsg.OffsetForLeaderEpochRequest, now, later []look) {
	req = kmsg.NewPtrOffsetForLeaderEpochRequest()
	req.ReplicaID = -1 // a consumer
	asked, topics := map[string]bool{}, map[string]int{}
	for _, l := range looks {
		t, split := l.t, splitName(l.t.topic, l.t.partition)
		t.mu.Lock()
		epoch := t.epoch
		t.mu.Unlock()
		switch {
		case epoch < 0:
			ends[t] = math.MaxInt64
		case asked[split], len(now) > 0 && now[0].leader != l.leader: // two readers may have come to different epochs
			later = append(later, l)
		default:
			asked[split] = true
			now = append(now, l)
			i, ok := topics[t.topic]
			if !ok {
				i = len(req.Topics)
				topics[t.topic] = i
				rt := kmsg.NewOffsetForLeaderEpochRequestTopic()
				rt.Topic = t.topic
				req.Topics = append(req.Topics, rt)
			}
			rp := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
			// A broker that isn't the leader, or not any more, must not answer.
			rp.Partition, rp.LeaderEpoch, rp.CurrentLeaderEpoch = t.partition, epoch, l.term
			req.Topics[i].Partitions = append(req.Topics[i].Partitions, rp)
		}
	}
	return req, now, later
}

// writtenIn takes the answer for one tap out of a broker's.
func writtenIn(resp *kmsg.OffsetForLeaderEpochResponse, t *tap) (int64, error) {
	for i := range resp.Topics {
		for j := range resp.Topics[i].Partitions {
			rp := &resp.Topics[i].Partitions[j]
			if resp.Topics[i].Topic != t.topic || rp.Partition != t.partition {
				continue
			}
			if err := kerr.ErrorForCode(rp.ErrorCode); err != nil {
				return 0, err
			}
			if rp.LeaderEpoch < 0 || rp.EndOffset < 0 {
				// It knows of no epoch as late as the one that was asked for. A leader of
				// Kafka notes its own epoch before it answers, so that this isn't
				// its answer to one of an earlier leader; other implementations of the
				// protocol note an epoch with its first batch, and answer so after each
				// change of leaders, though nothing is missing.
				return math.MaxInt64, nil
			}
			return rp.EndOffset, nil
		}
	}
	return 0, fmt.Errorf("broker's answer leaves it out: %w", kerr.LeaderNotAvailable)
}
