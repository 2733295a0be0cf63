package main

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirstream/weir/connector/kafka/kafkatest"
)

// noTime is a record without a timestamp.
var noTime = time.UnixMilli(-1)

// poison is a record that can't be taken.
type poison struct {
	name   string
	record kgo.Record
	says   string // the reason
	kind   string // of the letter
}

// poisons are one record of each kind that can't be taken.
func poisons() []poison {
	const good = `{"click_id":"x","ad_id":"ad-1","user_id":"u","ts":"2026-03-01T12:00:00Z"}`
	key := []byte("x")
	return []poison{
		{"undecodable", kgo.Record{Key: key, Value: []byte("{oops")}, "not valid JSON", "decode"},
		{"another type", kgo.Record{Key: key, Value: []byte(`{"click_id":7}`)}, "click_id", "decode"},
		{"no ad_id", kgo.Record{Key: key, Value: []byte(`{"click_id":"x","user_id":"u","ts":"2026-03-01T12:00:00Z"}`)}, "no ad_id", "decode"},
		{"an empty ad_id", kgo.Record{Key: key, Value: []byte(strings.Replace(good, "ad-1", "", 1))}, "no ad_id", "decode"},
		{"no click_id", kgo.Record{Key: key, Value: []byte(`{"ad_id":"ad-1","user_id":"u","ts":"2026-03-01T12:00:00Z"}`)}, "no click_id", "decode"},
		{"a bare null", kgo.Record{Key: key, Value: []byte(`null`)}, "null", "decode"},
		{"invalid UTF-8", kgo.Record{Key: key, Value: []byte("{\"ad_id\":\"\xff\"}")}, "UTF-8", "decode"},
		{"an empty value", kgo.Record{Key: key, Value: []byte{}}, "breaks off at byte 0", "decode"},
		{"null value", kgo.Record{Key: key}, "no value", "decode"},
		{"null key", kgo.Record{Value: []byte(good)}, "no key", "decode"},
		{"timestamp -1", kgo.Record{Key: key, Value: []byte(good), Timestamp: noTime}, "no timestamp", "decode"},
		{"no ts", kgo.Record{Key: key, Value: []byte(`{"click_id":"x","ad_id":"ad-1"}`)}, "time", "event-time"},
		{"ts in words", kgo.Record{Key: key, Value: []byte(strings.Replace(good, "2026-03-01T12:00:00Z", "yesterday", 1))}, "yesterday", "decode"},
		{"ts in microseconds", kgo.Record{Key: key, Value: []byte(`{"click_id":"x","ad_id":"ad-1","ts":1772366386200000}`)}, "time", "event-time"},
		{"ts in the far future", kgo.Record{Key: key, Value: []byte(strings.Replace(good, "2026", "2099", 1))}, "ahead", "event-time"},
		{"oversized", kgo.Record{Key: key, Value: []byte(strings.Replace(good, `"x"`, `"`+strings.Repeat("x", 1<<20)+`"`, 1))}, "1048576 are taken", "oversized"},
	}
}

// TestPoisonStopsTheJob: without a topic for dead letters the first record that
// can't be taken ends the run, which names it. What stands before it is counted.
func TestPoisonStopsTheJob(t *testing.T) {
	for _, bad := range poisons() {
		t.Run(bad.name, func(t *testing.T) {
			at := newPlace(t, 1)
			at.produce(at.made(0, 100)...)
			at.produceLarge(bad.record)
			at.produce(at.made(100, 200)...)
			where := fmt.Sprintf("topic %s, partition 0, offset 100", at.input)
			args := at.args("--stop-at-end", "--checkpoint-records", "10")
			launch(t, args...).Ends(10, where, bad.says)
			at.settled()
			before := at.committed(true)
			// Again and again: it doesn't slip past.
			launch(t, args...).Ends(10, where, bad.says)
			at.settled()
			same(t, "topic", at.committed(true), before)
		})
	}
}

// produceLarge writes a record of any size to partition 0 of the input.
func (p *place) produceLarge(r kgo.Record) {
	p.t.Helper()
	cl := kafkatest.Client(p.t, p.brokers, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchMaxBytes(8<<20),
		kgo.ProducerBatchCompression(kgo.SnappyCompression()))
	r.Topic, r.Partition = p.input, 0
	if err := cl.ProduceSync(p.t.Context(), &r).FirstErr(); err != nil {
		p.t.Fatal(err)
	}
}

// TestDeadLetters has the process killed again and again on an input with bad
// records in it. Each of them is in the dead letters once, as it was and with where
// it was; the counts are those of the good ones.
func TestDeadLetters(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	at := newPlace(t, 4)
	letters := kafkatest.Topic(t, at.brokers, 2)
	kinds := poisons()
	kinds = kinds[:len(kinds)-1] // large ones have a test of their own
	offsets := make([]int64, at.partitions)
	want := map[string]poison{} // by topic, partition and offset, in the words of errors
	var records []*kgo.Record
	add := func(r *kgo.Record) {
		records = append(records, r)
		offsets[r.Partition]++
	}
	for i, r := range at.file() {
		if rnd.IntN(25) == 0 || i == 0 {
			bad := kinds[(i+rnd.IntN(len(kinds)))%len(kinds)]
			b := bad.record
			b.Topic, b.Partition = at.input, int32(rnd.IntN(at.partitions))
			want[fmt.Sprintf("topic %s, partition %d, offset %d", at.input, b.Partition, offsets[b.Partition])] = bad
			add(&b)
		}
		add(r)
	}
	at.produce(records...)
	args := func() []string {
		return at.args("--dead-letters", letters, "--dedup", "1h", "--stop-at-end", "--checkpoint-records", "200",
			"--parallelism", strconv.Itoa(1+rnd.IntN(4)))
	}
	for slot := 2; slot < 16; slot += 3 + rnd.IntN(4) {
		p := launch(t, args()...)
		p.Entries(at.state, slot)
		p.Try(syscall.SIGKILL)
		p.End()
		at.committed(true)
		at.letters(letters)
	}
	launch(t, args()...).Ends(0)
	at.want(expected(t, "clicks_ad_minute_dedup"))
	at.wantLag(0)
	got := at.letters(letters)
	for where, bad := range want {
		r := got[where]
		if r == nil {
			t.Errorf("%s (%s) isn't in the dead letters", where, bad.name)
			continue
		}
		if string(r.Value) != string(bad.record.Value) || header(r, "weir-kind") != bad.kind || !strings.Contains(header(r, "weir-reason"), bad.says) {
			t.Errorf("the letter of %s (%s) is %.80q, %s: %s", where, bad.name, r.Value, header(r, "weir-kind"), header(r, "weir-reason"))
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d dead letters, want %d", len(got), len(want))
	}
}

// letters reads the dead letters by where their records are, and fails if one is
// there twice.
func (p *place) letters(topic string) map[string]*kgo.Record {
	p.t.Helper()
	all := map[string]*kgo.Record{}
	for _, r := range kafkatest.ReadCommitted(p.t, p.brokers, topic) {
		where := header(r, "weir-where")
		if all[where] != nil {
			p.t.Fatalf("%s is in the dead letters twice", where)
		}
		all[where] = r
	}
	return all
}

func header(r *kgo.Record, name string) string {
	for _, h := range r.Headers {
		if h.Key == name {
			return string(h.Value)
		}
	}
	return ""
}

// TestLargeRecords: what is too long to be taken, and what is small enough but whose
// count is too long for the output topic, are dead letters; everything else counts.
func TestLargeRecords(t *testing.T) {
	at := newPlace(t, 1)
	letters := kafkatest.Topic(t, at.brokers, 1)
	at.produce(at.made(0, 100)...)
	at.produceLarge(poisons()[len(poisons())-1].record)
	at.produceLarge(kgo.Record{Key: []byte("y"), Value: []byte(`{"click_id":"y","ad_id":"` + strings.Repeat("y", 700<<10) + `","ts":"2026-01-01T00:00:00Z"}`)})
	at.produce(at.made(100, 200)...)
	launch(t, at.args("--dead-letters", letters, "--stop-at-end")...).Ends(0, "ended: ")
	at.want(madeCounts(200))
	at.wantLag(0)
	var kinds []string
	for _, r := range kafkatest.ReadCommitted(t, at.brokers, letters) {
		kinds = append(kinds, header(r, "weir-kind"))
	}
	if strings.Join(kinds, " ") != "oversized sink" {
		t.Errorf("the letters are of kind %q", kinds)
	}
}
