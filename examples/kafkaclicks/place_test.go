package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirstream/weir/connector/kafka/kafkatest"
	"github.com/weirstream/weir/internal/process"
)

// place is where a job reads, writes and remembers.
type place struct {
	t             *testing.T
	brokers       []string
	input, output string
	partitions    int
	state         string
	adm           *kadm.Client
}

func newPlace(t *testing.T, partitions int) *place {
	t.Helper()
	brokers := kafkatest.Brokers(t)
	p := &place{t: t, brokers: brokers, partitions: partitions, state: filepath.Join(t.TempDir(), "state"),
		input: kafkatest.Topic(t, brokers, partitions), output: kafkatest.Topic(t, brokers, partitions)}
	p.adm = kadm.NewClient(kafkatest.Client(t, brokers))
	t.Cleanup(p.forget) // runs before the client is closed
	return p
}

// forget deletes what the job has made for itself on the cluster.
func (p *place) forget() {
	ctx, cancel := context.WithTimeout(context.Background(), process.Deadline)
	defer cancel()
	topics, err := p.adm.DeleteTopics(ctx, p.control())
	if err == nil {
		err = topics.Error()
	}
	if err != nil && !errors.Is(err, kerr.UnknownTopicOrPartition) {
		p.t.Logf("topic %s stays behind: %v", p.control(), err)
	}
	if _, err := p.adm.DeleteGroup(ctx, p.group()); err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
		p.t.Logf("group %s stays behind: %v", p.group(), err)
	}
}

// args makes a command line. Without more it counts to the input's end.
func (p *place) args(more ...string) []string {
	return append([]string{"run", "--brokers", p.list(), "--input", p.input, "--output", p.output,
		"--state", p.state, "--progress", "0"}, more...)
}

// list is the value of --brokers.
func (p *place) list() string { return strings.Join(p.brokers, ",") }

// group is the consumer group that the job keeps for lag tools.
func (p *place) group() string { return p.output + "-kafka-clicks" }

// control is the topic with the ids of the job's checkpoints.
func (p *place) control() string { return p.group() + ".ckpt" }

// message is the JSON of a click as a record: keyed by the click's id, in the
// partition where all records of that id are.
func (p *place) message(id, value string) *kgo.Record {
	h := fnv.New32a()
	_, _ = h.Write([]byte(id)) // it never fails
	return &kgo.Record{Topic: p.input, Partition: int32(h.Sum32() % uint32(p.partitions)), Key: []byte(id), Value: []byte(value)}
}

func (p *place) produce(records ...*kgo.Record) {
	p.t.Helper()
	kafkatest.Produce(p.t, p.brokers, records...)
}

const clicks10k = "../../testdata/clicks-10k.jsonl"

// file makes records of the ten thousand clicks of the test data.
func (p *place) file() []*kgo.Record {
	p.t.Helper()
	f, err := os.Open(clicks10k)
	if err != nil {
		p.t.Fatal(err)
	}
	defer f.Close()
	var out []*kgo.Record
	for s := bufio.NewScanner(f); s.Scan(); {
		var click struct {
			ID string `json:"click_id"`
		}
		if err := json.Unmarshal(s.Bytes(), &click); err != nil {
			p.t.Fatal(err)
		}
		out = append(out, p.message(click.ID, s.Text()))
	}
	if len(out) != 10_000 {
		p.t.Fatalf("%s has %d lines", clicks10k, len(out))
	}
	return out
}

// made makes clicks from to to-1 of an endless sequence: five ads in turn, a tenth
// of a second apart.
func (p *place) made(from, to int) []*kgo.Record {
	out := make([]*kgo.Record, 0, to-from)
	for i := from; i < to; i++ {
		id := fmt.Sprintf("c%d", i)
		out = append(out, p.message(id, fmt.Sprintf(`{"click_id":%q,"ad_id":"ad-%d","user_id":"u","ts":%q}`,
			id, i%5, clickTime(i).Format("2006-01-02T15:04:05.000Z"))))
	}
	return out
}

func clickTime(i int) time.Time {
	return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(i) * 100 * time.Millisecond)
}

// counts are clicks by AD|MINUTE.
type counts map[string]int64

// madeCounts is what the first n clicks of the endless sequence amount to.
func madeCounts(n int) counts {
	c := counts{}
	for i := range n {
		c[fmt.Sprintf("ad-%d|%s", i%5, clickTime(i).Truncate(time.Minute).Format(time.RFC3339))]++
	}
	return c
}

// differ counts the keys that only one of the two has, or with another count.
func (c counts) differ(o counts) (n int, first string) {
	note := func(key string) {
		if n++; n == 1 {
			first = fmt.Sprintf("%s: %d, want %d", key, c[key], o[key])
		}
	}
	for k, v := range c {
		if w, ok := o[k]; !ok || v != w {
			note(k)
		}
	}
	for k := range o {
		if _, ok := c[k]; !ok {
			note(k)
		}
	}
	return n, first
}

// parsed is a message of the output topic, as another program would read it.
func parsed(t *testing.T, r *kgo.Record) (key string, clicks int64) {
	t.Helper()
	var v struct {
		Ad     *string `json:"ad_id"`
		Minute *string `json:"minute"`
		Clicks *int64  `json:"clicks"`
	}
	d := json.NewDecoder(strings.NewReader(string(r.Value)))
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil || v.Ad == nil || v.Minute == nil || v.Clicks == nil {
		t.Fatalf("%s/%d, offset %d: the value %q isn't what was promised: %v", r.Topic, r.Partition, r.Offset, r.Value, err)
	}
	if at, err := time.Parse("2006-01-02T15:04:00Z", *v.Minute); err != nil || string(r.Key) != *v.Ad+"|"+*v.Minute {
		t.Fatalf("%s/%d, offset %d: key %q, value %q, minute %v, %v", r.Topic, r.Partition, r.Offset, r.Key, r.Value, at, err)
	}
	return string(r.Key), *v.Clicks
}

// committed reads the counts in the output topic: the last of each key. With once
// it fails where a key's counts don't grow from message to message: an epoch was
// then written twice, or half of it.
func (p *place) committed(once bool) counts {
	p.t.Helper()
	c, where := counts{}, map[string]int32{}
	for _, r := range kafkatest.ReadCommitted(p.t, p.brokers, p.output) {
		key, n := parsed(p.t, r)
		if at, ok := where[key]; ok && at != r.Partition {
			p.t.Fatalf("key %s is in partitions %d and %d", key, at, r.Partition)
		}
		if once && n <= c[key] {
			p.t.Fatalf("%s/%d, offset %d: %s is %d, and was %d before", r.Topic, r.Partition, r.Offset, key, n, c[key])
		}
		where[key] = r.Partition
		c[key] = n
	}
	return c
}

// settled waits until no transaction is open in the output topic.
func (p *place) settled() {
	p.t.Helper()
	kafkatest.Settle(p.t, p.brokers, p.output)
}

// messages counts what readers see in the output topic.
func (p *place) messages() int {
	p.t.Helper()
	p.settled()
	return len(kafkatest.ReadCommitted(p.t, p.brokers, p.output))
}

// lag is what lag tools say of the job: by how much its group's offsets are behind
// the input's end. A partition without an offset counts as not read at all.
func (p *place) lag() (lag int64) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), process.Deadline)
	defer cancel()
	ends, err := p.adm.ListEndOffsets(ctx, p.input)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		p.t.Fatal(err)
	}
	done, err := p.adm.FetchOffsets(kadm.RequireStable(ctx), p.group())
	if err == nil {
		err = done.Error()
	}
	if err != nil {
		p.t.Fatalf("offsets of group %s: %v", p.group(), err)
	}
	ends.Each(func(end kadm.ListedOffset) {
		at, _ := done.Lookup(end.Topic, end.Partition)
		lag += end.Offset - at.At
	})
	return lag
}

func (p *place) wantLag(want int64) {
	p.t.Helper()
	if lag := p.lag(); lag != want {
		p.t.Fatalf("the lag of group %s is %d, want %d", p.group(), lag, want)
	}
}

// want compares what readers see of the output topic, each count once.
func (p *place) want(want counts) {
	p.t.Helper()
	p.settled()
	p.compare(want, true)
}

func (p *place) compare(want counts, once bool) {
	p.t.Helper()
	got := p.committed(once)
	if n, first := got.differ(want); n > 0 {
		p.t.Fatalf("%d of %d counts are wrong, %d expected; %s", n, len(got), len(want), first)
	}
}

// shows waits until readers see what they should.
func (p *place) shows(job *running, want counts) {
	p.t.Helper()
	job.Poll("the counts", func() bool {
		n, _ := p.committed(true).differ(want)
		return n == 0
	})
}
