package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/codec"
	"github.com/weirstream/weir/connector/kafka/kafkatest"
	"github.com/weirstream/weir/internal/sys"
)

// madeLog is what a kfake cluster answers about partition 0 of a topic, in place
// of what it has: logs that it can't be brought to have itself.
type madeLog struct {
	topic string
	c     *kfake.Cluster

	mu                 sync.Mutex
	batches            [][]byte
	start, end, stable int64
	epochs             map[int32]int64 // where the records of a leader's epoch end
	faults             []*kerr.Error   // of the next fetches
	instead            []byte          // of what is behind the first batch
	blind              int64           // before it, no records but those of the first batch are sent
	asked              chan struct{}   // a fetch has come
	epochFaults        []*kerr.Error   // of the next questions about leaders' epochs
	listFaults         []*kerr.Error   // of the next questions about the end
	leaveOut           int             // how often an answer about epochs has no partition in it
	fetches            int
}

func newMadeLog(t *testing.T, batches ...[]byte) *madeLog { return newMadeLogWith(t, nil, batches...) }

// newMadeLogWith is newMadeLog of a topic with settings.
func newMadeLogWith(t *testing.T, configs []string, batches ...[]byte) *madeLog {
	l := &madeLog{c: kafkatest.FakeOnly(t, "the log is made up by the test"), batches: batches, asked: make(chan struct{}, 1)}
	l.topic = kafkatest.Topic(t, l.c.ListenAddrs(), 1, configs...)
	if len(batches) > 0 {
		first, _, _ := cutBatch(batches[0])
		last, _, _ := cutBatch(batches[len(batches)-1])
		l.start, l.end = first.first, last.last+1
	}
	l.stable = l.end
	done := make(chan struct{})
	t.Cleanup(func() { close(done) })
	for key, answer := range map[kmsg.Key]func(kmsg.Request) kmsg.Response{
		kmsg.Fetch: l.fetch, kmsg.ListOffsets: l.list, kmsg.OffsetForLeaderEpoch: l.epoch,
	} {
		l.c.ControlKey(int16(key), func(req kmsg.Request) (kmsg.Response, error, bool) {
			l.c.KeepControl()
			select {
			case <-done:
				return nil, nil, false
			default:
				return answer(req), nil, true
			}
		})
	}
	return l
}

func (l *madeLog) change(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
}

// fetch answers as a broker does: whole batches, but for the last one, which it
// may cut off.
func (l *madeLog) fetch(kreq kmsg.Request) kmsg.Response {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fetches++
	select {
	case l.asked <- struct{}{}:
	default:
	}
	req := kreq.(*kmsg.FetchRequest)
	resp := req.ResponseKind().(*kmsg.FetchResponse)
	for _, t := range req.Topics {
		rt := kmsg.NewFetchResponseTopic()
		rt.Topic, rt.TopicID = t.Topic, t.TopicID
		for _, p := range t.Partitions {
			rp := kmsg.NewFetchResponseTopicPartition()
			rp.Partition, rp.HighWatermark, rp.LastStableOffset, rp.LogStartOffset = p.Partition, l.end, l.stable, l.start
			rp.RecordBatches = []byte{}
			switch {
			case len(l.faults) > 0:
				rp.ErrorCode = l.faults[0].Code
				l.faults = l.faults[1:]
			case p.FetchOffset < l.start || p.FetchOffset > l.end:
				rp.ErrorCode = kerr.OffsetOutOfRange.Code
			case p.FetchOffset > 0 && p.FetchOffset < l.blind:
			case l.instead != nil && p.FetchOffset > 0:
				rp.RecordBatches = l.instead
			default:
				for n, raw := range l.batches {
					if n > 0 && (l.instead != nil || p.FetchOffset < l.blind) {
						break
					}
					if b, _, _ := cutBatch(raw); b.last < p.FetchOffset || b.first >= l.stable {
						continue
					}
					if n := len(rp.RecordBatches); n > 0 {
						raw = raw[:min(len(raw), max(0, int(p.PartitionMaxBytes)-n))]
					}
					rp.RecordBatches = append(rp.RecordBatches, raw...)
				}
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

func (l *madeLog) list(kreq kmsg.Request) kmsg.Response {
	l.mu.Lock()
	defer l.mu.Unlock()
	req := kreq.(*kmsg.ListOffsetsRequest)
	resp := req.ResponseKind().(*kmsg.ListOffsetsResponse)
	for _, t := range req.Topics {
		rt := kmsg.NewListOffsetsResponseTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			rp := kmsg.NewListOffsetsResponseTopicPartition()
			rp.Partition, rp.Offset = p.Partition, l.start
			switch {
			case p.Timestamp == -1 && len(l.listFaults) > 0:
				rp.ErrorCode = l.listFaults[0].Code
				l.listFaults = l.listFaults[1:]
			case p.Timestamp == -1 && req.IsolationLevel == 1:
				rp.Offset = l.stable
			case p.Timestamp == -1:
				rp.Offset = l.end
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

func (l *madeLog) epoch(kreq kmsg.Request) kmsg.Response {
	l.mu.Lock()
	defer l.mu.Unlock()
	req := kreq.(*kmsg.OffsetForLeaderEpochRequest)
	resp := req.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
	for _, t := range req.Topics {
		rt := kmsg.NewOffsetForLeaderEpochResponseTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			rp := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
			rp.Partition, rp.LeaderEpoch, rp.EndOffset = p.Partition, -1, -1
			switch end, ok := l.epochs[p.LeaderEpoch]; {
			case l.leaveOut > 0:
				l.leaveOut--
				continue
			case len(l.epochFaults) > 0:
				rp.ErrorCode = l.epochFaults[0].Code
				l.epochFaults = l.epochFaults[1:]
			case ok:
				rp.LeaderEpoch, rp.EndOffset = p.LeaderEpoch, end
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

// ofValues makes a batch of one record for each offset, whose value is the offset.
func ofValues(epoch int32, last int64, offsets ...int64) []byte {
	var recs []madeRecord
	for _, o := range offsets {
		recs = append(recs, madeRecord{offset: o, time: 1_700_000_000_000, value: fmt.Append(nil, o)})
	}
	return makeBatch(epoch, -1, 0, recs, last, nil)
}

// source is one of the log's values.
func (l *madeLog) source(opts ...SourceOption) weir.Source[string] {
	return Source(NewCluster(l.c.ListenAddrs()), Named(l.topic), codec.String(), opts...)
}

// open opens the log's partition. What is to be known is in told.
func (l *madeLog) open(t *testing.T, at []byte, opts ...SourceOption) (r weir.Reader[string], told func() string) {
	t.Helper()
	r, told, err := l.tryOpen(t, at, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return r, told
}

func (l *madeLog) tryOpen(t *testing.T, at []byte, opts ...SourceOption) (weir.Reader[string], func() string, error) {
	var mu sync.Mutex
	var all []string
	env := *sys.From(t.Context())
	env.Warn = func(what string) {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, what)
	}
	env.Waiting = env.Warn
	r, err := l.source(opts...).Open(sys.With(t.Context(), &env), l.topic+"/0", at)
	if err != nil {
		return nil, nil, err
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r, func() string {
		mu.Lock()
		defer mu.Unlock()
		return strings.Join(all, "\n")
	}, nil
}

// drain reads until it is idle, an error, or the end.
func drain(t *testing.T, r weir.Reader[string]) (got []string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), kafkatest.Patience)
	defer cancel()
	for {
		var end bool
		before := len(got)
		if got, end, err = r.Read(got, 5); end || err != nil {
			return got, err
		}
		st := r.(weir.StatusReader).Status()
		switch {
		case len(got) > before:
			continue
		case st.Idle:
			return got, nil
		}
		select {
		case <-r.Ready():
		case <-ctx.Done():
			t.Fatalf("read %v up to %q, and there it stays: %+v", got, r.Position(), st)
		}
	}
}

func TestHolesInALog(t *testing.T) {
	for _, tt := range []struct {
		name    string
		batches [][]byte
		start   int64
		end     int64 // of the log, where it isn't that of the batches
		want    []string
	}{
		{"between batches", [][]byte{ofValues(0, 1, 0, 1), ofValues(0, 300_003, 300_002, 300_003)}, 0, 0, []string{"0", "1", "300002", "300003"}},
		{"in a batch", [][]byte{ofValues(0, 300_000, 0, 299_999)}, 0, 0, []string{"0", "299999"}},
		{"at the start", [][]byte{ofValues(0, 300_000, 300_000)}, 1, 0, []string{"300000"}},
		{"at the end of a batch", [][]byte{ofValues(0, 300_000, 0)}, 0, 0, []string{"0"}},
		{"an empty batch at the end", [][]byte{ofValues(0, 0, 0), ofValues(0, 300_000)}, 0, 0, []string{"0"}},
		{"no batch at the end", [][]byte{ofValues(0, 0, 0)}, 0, 300_000, []string{"0"}},
		{"no batch at all", nil, 0, 300_000, nil},
		{"empty batches alone", [][]byte{ofValues(0, 5), ofValues(0, 10)}, 0, 0, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := newMadeLogWith(t, compacted, tt.batches...)
			l.start = tt.start
			if tt.end > 0 {
				l.end, l.stable = tt.end, tt.end
			}
			for name, opts := range map[string][]SourceOption{"bounded": {Bounded()}, "stopped": {StopAtEnd()}, "endless": nil} {
				r, _ := l.open(t, nil, opts...)
				if got, err := drain(t, r); err != nil || !slices.Equal(got, tt.want) {
					t.Errorf("%s: read %v, error %v; want %v", name, got, err, tt.want)
				}
				if p, err := parsePosition(r.Position()); err != nil || p.offset != l.end {
					t.Errorf("%s: it stands at %q, %v; want %d", name, r.Position(), err, l.end)
				}
			}
		})
	}
}

// A broker that sends something else than what it is asked for isn't believed to
// have a hole there.
func TestNotTheOffsetThatWasAskedFor(t *testing.T) {
	whole := ofValues(0, 9, 9)
	for name, instead := range map[string][]byte{"half a batch": whole[:len(whole)-1], "what is before it": ofValues(0, 0, 0), "nonsense": make([]byte, 100)} {
		t.Run(name, func(t *testing.T) {
			l := newMadeLog(t, ofValues(0, 0, 0), whole)
			l.instead = instead
			r, _ := l.open(t, nil)
			got, err := drain(t, r)
			if err == nil || !slices.Equal(got, []string{"0"}) || !saysTemporary(err) || !strings.Contains(err.Error(), "asked for offset 1") {
				t.Errorf("read %v, error %v", got, err)
			}
		})
	}
}

// A hole at the end isn't taken for one while a transaction is open there: what
// comes behind it is read.
func TestHoleBeforeWhatIsOpen(t *testing.T) {
	l := newMadeLogWith(t, compacted, ofValues(0, 0, 0))
	l.end, l.stable = 20, 10
	r, _ := l.open(t, nil)
	for p := (position{}); p.offset < 10; {
		if got, _, err := r.Read(nil, 10); err != nil || len(got) > 0 && got[0] != "0" {
			t.Fatalf("read %v, error %v", got, err)
		}
		p, _ = parsePosition(r.Position())
		if p.offset < 10 {
			<-r.Ready()
		}
	}
	if st := r.(weir.StatusReader).Status(); st.Idle || st.Lag != 10 {
		t.Errorf("before what is open: %+v", st)
	}
	l.change(func() {
		l.batches = append(l.batches, ofValues(0, 19, 15))
		l.stable = 20
	})
	if got, err := drain(t, r); err != nil || !slices.Equal(got, []string{"15"}) {
		t.Errorf("read %v, error %v", got, err)
	}
}

// Batches of more than a tap may hold come one at a time, and cut off behind that.
func TestLargeBatches(t *testing.T) {
	var batches [][]byte
	var want []string
	for i := range int64(9) {
		v := strings.Repeat(fmt.Sprint(i), 40_000*int(i%3)+1)
		want = append(want, v)
		batches = append(batches, makeBatch(0, -1, 0, []madeRecord{{offset: i, value: []byte(v)}}, i, nil))
	}
	l := newMadeLog(t, batches...)
	r, _ := l.open(t, nil, Buffer(1))
	if got, err := drain(t, r); err != nil || !slices.Equal(got, want) {
		t.Errorf("read %d values, error %v; want %d", len(got), err, len(want))
	}
}

// Whatever passes by itself costs nothing but time.
func TestPassingFaults(t *testing.T) {
	for _, fault := range []*kerr.Error{
		kerr.NotLeaderForPartition, kerr.LeaderNotAvailable, kerr.FencedLeaderEpoch, kerr.UnknownLeaderEpoch, kerr.OffsetNotAvailable,
		kerr.UnknownTopicOrPartition, kerr.UnknownTopicID, kerr.InconsistentTopicID, kerr.KafkaStorageError, kerr.ReplicaNotAvailable, kerr.OffsetOutOfRange,
	} {
		t.Run(fault.Message, func(t *testing.T) {
			l := newMadeLog(t, ofValues(0, 1, 0, 1), ofValues(0, 3, 2, 3))
			l.faults = []*kerr.Error{fault, fault, fault}
			r, told := l.open(t, nil, Bounded())
			if got, err := drain(t, r); err != nil || !slices.Equal(got, []string{"0", "1", "2", "3"}) {
				t.Errorf("read %v, error %v (%s)", got, err, told())
			}
			l.change(func() {
				if len(l.faults) > 0 {
					t.Errorf("%d faults were not met", len(l.faults))
				}
			})
		})
	}
}

// What doesn't pass ends the reader, and says where; what says that the job may do
// it no more, ends the job.
func TestLastingFaults(t *testing.T) {
	for fault, refused := range map[*kerr.Error]bool{kerr.TopicAuthorizationFailed: true, kerr.UnknownServerError: false, kerr.UnsupportedCompressionType: false} {
		t.Run(fault.Message, func(t *testing.T) {
			l := newMadeLog(t, ofValues(0, 1, 0, 1))
			l.faults = slices.Repeat([]*kerr.Error{fault}, 100)
			r, _ := l.open(t, nil)
			_, err := drain(t, r)
			if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("topic %s, partition 0, at offset 0", l.topic)) || errors.Is(err, weir.ErrRefused) != refused || saysTemporary(err) == refused {
				t.Error(err)
			}
		})
	}
}

// saysTemporary is what control asks of an error: whether to restart in place.
func saysTemporary(err error) bool {
	t, ok := errors.AsType[interface {
		error
		Temporary() bool
	}](err)
	return ok && t.Temporary()
}

// A batch that becomes too large stops the reader, in front of it, at any time.
func TestBatchThatBecomesTooLarge(t *testing.T) {
	pack := packers(t)
	for c, p := range pack {
		if c == kgo.CodecNone {
			continue
		}
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			bomb := makeBatch(0, -1, int16(c), []madeRecord{{offset: 2, value: make([]byte, 2<<20)}, {offset: 3}}, 4, p)
			l := newMadeLog(t, ofValues(0, 1, 0, 1))
			r, _ := l.open(t, nil, MaxBatch(1<<20))
			if got, err := drain(t, r); err != nil || len(got) != 2 {
				t.Fatalf("read %v, error %v", got, err)
			}
			l.change(func() {
				l.batches = append(l.batches, bomb, ofValues(0, 5, 5))
				l.end, l.stable = 6, 6
			})
			var err error
			for err == nil {
				<-r.Ready()
				_, _, err = r.Read(nil, 10)
			}
			for _, part := range []string{"topic " + l.topic, "partition 0", "offsets 2 to 4", "1048576", "MaxBatch"} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q doesn't say %q", err, part)
				}
			}
			if p, _ := parsePosition(r.Position()); p.offset != 2 {
				t.Errorf("it stands at %q", r.Position())
			}
			if saysTemporary(err) {
				t.Error("it says that it passes by itself")
			}
			again, _ := l.open(t, r.Position(), MaxBatch(1<<20))
			if _, err := drain(t, again); err == nil || !strings.Contains(err.Error(), "offsets 2 to 4") {
				t.Errorf("opened before it: %v", err)
			}
			if r, _ := l.open(t, again.Position(), MaxBatch(4<<20)); r != nil {
				got, _, err := r.Read(nil, 10)
				for len(got) < 2 && err == nil {
					<-r.Ready()
					got, _, err = r.Read(got, 10)
				}
				if err == nil || !strings.Contains(err.Error(), "offset 3") {
					t.Errorf("with a larger limit: %d, %v", len(got), err) // the tombstone
				}
			}
		})
	}
}
