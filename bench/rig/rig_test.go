package rig

import (
	"encoding/json/v2"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/weirstream/weir/connector/kafka/kafkatest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestClicks holds the workload to what it is said to be.
func TestClicks(t *testing.T) {
	w := Workload{Seed: 7, Records: 100_000}
	first := map[uint32]made{}
	repeats, last := 0, map[uint32]int64{}
	for i := range w.Records {
		c := w.click(i)
		value := appendValue(nil, c)
		if len(value) != 77 {
			t.Fatalf("click %d has %d bytes, want 77: %s", i, len(value), value)
		}
		var got Click
		if err := json.Unmarshal(value, &got); err != nil || got.At != c.at || got.Ad != string(appendKey(nil, c.ad)) {
			t.Fatalf("click %d, %s: %+v, %v", i, value, got, err)
		}
		if late := firstClick + i/10 - c.at; late < 0 || late >= disorder {
			t.Fatalf("click %d is %d ms late, want less than %d", i, late, disorder)
		}
		was, ok := first[c.id]
		if ok != c.repeat || ok && (was.ad != c.ad || was.user != c.user) {
			t.Fatalf("click %d: %+v, before it %+v (%v)", i, c, was, ok)
		}
		if ok {
			repeats++
			if i-last[c.id] > within {
				t.Fatalf("click %d repeats one that is %d clicks before it", i, i-last[c.id])
			}
		} else {
			first[c.id] = c
		}
		last[c.id] = i
	}
	if share := float64(repeats) / float64(w.Records); share < 0.018 || share > 0.022 {
		t.Errorf("%.4f of the clicks are repeats, want 0.02", share)
	}
	if c := (Workload{Seed: 8, Records: 1}).click(0); c == w.click(0) {
		t.Error("another seed gives the same click")
	}
}

// laps is a cluster with the input of a workload.
type laps struct {
	topics *Topics
	ref    *Reference
	spec   Spec
}

func newLaps(t *testing.T, records int64) laps {
	t.Helper()
	w := Workload{Seed: 3, Records: records}
	brokers := kafkatest.Brokers(t)
	topics, err := NewTopics(brokers)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(topics.Close)
	input, err := topics.Input(t.Context(), w)
	if err != nil {
		t.Fatal(err)
	}
	return laps{topics, NewReference(w), Spec{Brokers: brokers, Input: input, Interval: 50 * time.Millisecond}}
}

// run runs a lap in this process.
func (l laps) run(t *testing.T, s Spec) Lap {
	t.Helper()
	s.Name, s.StateDir = kafkatest.Name(t), t.TempDir()
	s.Output = s.Name + ".out"
	if err := l.topics.Create(t.Context(), s.Output); err != nil {
		t.Fatal(err)
	}
	m := &meter{born: time.Now()}
	side := runLoop
	if s.Side == Weir {
		side = runJob
	}
	if err := side(t.Context(), s, m); err != nil {
		t.Fatal(err)
	}
	if err := l.ref.Check(t.Context(), l.topics, s.Output, s.Work); err != nil {
		t.Error(err)
	}
	if m.lap.Records != l.ref.w.Records || m.lap.Commits == 0 {
		t.Errorf("%d records in %d commits, want %d", m.lap.Records, m.lap.Commits, l.ref.w.Records)
	}
	if err := l.topics.Delete(t.Context(), s); err != nil {
		t.Error(err)
	}
	return m.lap
}

// TestLaps: both sides do the same, and it is right.
func TestLaps(t *testing.T) {
	l := newLaps(t, 20_000)
	for name, s := range map[string]Spec{
		"count, raw":             {Side: Raw, Work: Count},
		"count, raw, json":       {Side: Raw, Work: Count, DefaultCodec: true},
		"count, weir":            {Side: Weir, Work: Count, Tasks: 1},
		"count, weir, json":      {Side: Weir, Work: Count, Tasks: 1, DefaultCodec: true},
		"count, weir, two tasks": {Side: Weir, Work: Count, Tasks: 2},
		"count, weir, at least":  {Side: Weir, Work: Count, Tasks: 1, AtLeastOnce: true},
		"copy, raw":              {Side: Raw, Work: Copy},
		"copy, weir":             {Side: Weir, Work: Copy, Tasks: 1},
		"copy, weir, two tasks":  {Side: Weir, Work: Copy, Tasks: 2},
		"dedup, raw":             {Side: Raw, Work: Dedup},
		"dedup, weir":            {Side: Weir, Work: Dedup, Tasks: 1},
		"dedup, weir, two tasks": {Side: Weir, Work: Dedup, Tasks: 2},
	} {
		t.Run(name, func(t *testing.T) {
			s.Brokers, s.Input, s.Interval = l.spec.Brokers, l.spec.Input, l.spec.Interval
			l.run(t, s)
		})
	}
}

// TestCheckFindsFaults: an output with a fault in it doesn't pass.
func TestCheckFindsFaults(t *testing.T) {
	l := newLaps(t, 5_000)
	read := func(topic string) (recs []*kgo.Record) {
		err := l.topics.Read(t.Context(), topic, func(r *kgo.Record) error {
			recs = append(recs, &kgo.Record{Key: slices.Clone(r.Key), Value: slices.Clone(r.Value)})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return recs
	}
	counted := map[string]*kgo.Record{}
	for i := range l.ref.w.Records {
		c := l.ref.w.click(i)
		minute := time.UnixMilli(c.at).UTC().Truncate(time.Minute)
		ad := string(appendKey(nil, c.ad))
		key := string(appendCountKey(nil, ad, minute))
		at := (c.at-firstClick)/60_000*Ads + int64(c.ad)
		counted[key] = &kgo.Record{Key: []byte(key), Value: appendCountValue(nil, ad, minute, l.ref.clicks[at])}
	}
	right := map[Work][]*kgo.Record{Copy: read(l.spec.Input), Count: slices.Collect(maps.Values(counted))}
	for name, fault := range map[string]func([]*kgo.Record) []*kgo.Record{
		"none":     func(r []*kgo.Record) []*kgo.Record { return r },
		"one lost": func(r []*kgo.Record) []*kgo.Record { return r[1:] },
		"a value": func(r []*kgo.Record) []*kgo.Record {
			return append(slices.Clone(r[1:]), &kgo.Record{Key: r[0].Key, Value: r[1].Value})
		},
		"a key": func(r []*kgo.Record) []*kgo.Record {
			return append(slices.Clone(r[1:]), &kgo.Record{Key: r[1].Key, Value: r[0].Value})
		},
		"one strange": func(r []*kgo.Record) []*kgo.Record {
			return append(slices.Clone(r), &kgo.Record{Key: []byte("ad-9|"), Value: []byte(`{"ad_id":"ad-9"}`)})
		},
	} {
		for work, recs := range right {
			t.Run(string(work)+"/"+name, func(t *testing.T) {
				topic := kafkatest.Topic(t, l.spec.Brokers, Partitions)
				out := fault(recs)
				for i := range out {
					out[i] = &kgo.Record{Topic: topic, Key: out[i].Key, Value: out[i].Value}
				}
				kafkatest.Produce(t, l.spec.Brokers, out...)
				err := l.ref.Check(t.Context(), l.topics, topic, work)
				if (name == "none") != (err == nil) {
					t.Errorf("%v", err)
				}
			})
		}
	}
}

// TestOpenTransactionIsNoResult: what isn't committed when a lap has ended is a
// fault.
func TestOpenTransactionIsNoResult(t *testing.T) {
	l := newLaps(t, 10)
	topic := kafkatest.Topic(t, l.spec.Brokers, Partitions)
	end := kafkatest.ProduceIn(t, l.spec.Brokers, topic, &kgo.Record{Topic: topic, Value: []byte("x")})
	l.topics.patience = 0
	if err := l.ref.Check(t.Context(), l.topics, topic, Copy); err == nil || !strings.Contains(err.Error(), "a transaction is open") {
		t.Errorf("%v", err)
	}
	end(kgo.TryAbort)
}
