package kafka

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/codec"
	"github.com/weirstream/weir/connector/kafka/kafkatest"
)

// heldBy is what a source's taps hold.
func heldBy(s *source[string]) (each []int) {
	s.mu.Lock()
	f := s.feed
	s.mu.Unlock()
	for _, t := range f.taps() {
		t.mu.Lock()
		each = append(each, t.held)
		t.mu.Unlock()
	}
	return each
}

// A split whose reader stands still takes no more memory than its share, and the
// others go on.
func TestSlowSplits(t *testing.T) {
	brokers := kafkatest.Brokers(t)
	const splits, each, size = 4, 150, 20_000
	topic := kafkatest.Topic(t, brokers, splits)
	cl := kafkatest.Client(t, brokers, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchMaxBytes(64<<10), kgo.ProducerBatchCompression(kgo.NoCompression()))
	for p := range int32(splits) {
		var recs []*kgo.Record
		for i := range each {
			recs = append(recs, &kgo.Record{Topic: topic, Partition: p, Value: []byte(strings.Repeat(fmt.Sprint(i%10), size))})
		}
		if err := cl.ProduceSync(t.Context(), recs...).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	const buffer = splits * 200_000
	src := Source(NewCluster(brokers), Named(topic), codec.String(), Buffer(buffer)).(*source[string])
	var readers []weir.Reader[string]
	for p := range splits {
		r, err := src.Open(t.Context(), splitName(topic, int32(p)), nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		})
		readers = append(readers, r)
	}
	late := time.After(kafkatest.Patience)
	var most int
	for n := range splits { // one reader after the other reads all, while the others stand still
		got := 0
		for got < each {
			recs, _, err := readers[n].Read(nil, 7)
			if err != nil {
				t.Fatal(err)
			}
			if got += len(recs); len(recs) > 0 {
				continue
			}
			for _, h := range heldBy(src) {
				most = max(most, h)
			}
			select {
			case <-readers[n].Ready():
			case <-late:
				t.Fatalf("split %d: %d of %d messages, and the taps hold %v", n, got, each, heldBy(src))
			}
		}
	}
	share := buffer / splits / 2
	if most > 2*share+(64<<10) || most < share/2 {
		t.Errorf("a tap has held %d bytes, and its share is %d", most, share)
	}
	for _, r := range readers { // a parcel is held until a Read has found that there is no more in it
		if recs, _, err := r.Read(nil, 1); err != nil || len(recs) > 0 {
			t.Errorf("behind the last message: %d, error %v", len(recs), err)
		}
	}
	if all := heldBy(src); slices.Max(all) > 0 {
		t.Errorf("when all was read the taps hold %v", all)
	}
}

// Reading a record allocates nothing but what its codec does.
func TestReadAllocatesNothing(t *testing.T) {
	raw, next := clicks(10, 100)
	s := newSource[int](NewCluster([]string{"x:1"}), Named("t"), nil)
	s.conf.require |= Value
	s.decode = func(m *Message, rec *int) error { *rec = len(m.Value); return nil }
	f := &feed{conf: s.conf, spare: spare{max: s.conf.maxBatch}}
	f.share.Store(1 << 30)
	tap := &tap{f: f, topic: "t", ready: make(chan struct{}, 1)}
	r := &reader[int]{s: s, t: tap, stop: noEnd, pos: position{end: noEnd}, begun: true, in: batches{topic: "t", spare: &f.spare}}
	recs := make([]int, 0, 256)
	n := 0
	allocs := testing.AllocsPerRun(20, func() {
		tap.parcels = append(tap.parcels[:0], &parcel{raw: raw, next: next})
		r.pos.offset = 0
		for {
			got, _, err := r.Read(recs[:0], 256)
			if err != nil {
				t.Fatal(err)
			}
			if n += len(got); len(got) == 0 {
				return
			}
		}
	})
	if n != 21*1000 || allocs > 5 { // for 1,000 records; the parcel is one
		t.Errorf("%d records, %v allocations for each 1,000", n, allocs)
	}
}
