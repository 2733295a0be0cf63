package kafkalab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// startCluster starts real brokers that end with the test.
func startCluster(t *testing.T, o Options) *Cluster {
	t.Helper()
	Need(t)
	o.Dir = filepath.Join(t.TempDir(), "kafka")
	began := time.Now()
	c, err := Start(limit(t, 5*time.Minute), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("close the cluster: %v", err)
		}
	})
	t.Logf("%d nodes served after %v", max(o.Nodes, 1), time.Since(began).Round(100*time.Millisecond))
	return c
}

func createTopic(t *testing.T, c *Cluster, name string, partitions int32) {
	t.Helper()
	cl := once(t, c.Brokers(), kgo.RequestRetries(20), kgo.RetryTimeout(30*time.Second))
	if _, err := kadm.NewClient(cl).CreateTopic(limit(t, time.Minute), partitions, -1, nil, name); err != nil {
		t.Fatal(err)
	}
}

func produce(t *testing.T, cl *kgo.Client, records ...*kgo.Record) {
	t.Helper()
	if err := cl.ProduceSync(limit(t, time.Minute), records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

func client(t *testing.T, brokers []string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(brokers...), kgo.MetadataMinAge(10 * time.Millisecond),
		kgo.RecordPartitioner(kgo.ManualPartitioner())}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

// On one node: the cuts, what kcat reads, and a crash in the middle of a
// transaction, which a coordinator that starts again still knows.
func TestOneNode(t *testing.T) {
	NeedKcat(t)
	c := startCluster(t, Options{Proxy: true})
	t.Run("cuts", func(t *testing.T) {
		createTopic(t, c, "cut", 1)
		cutEveryKind(t, newCutLab(t, c.Proxy(), c.Brokers()[0], "cut"))
		if dir := c.Dir(); !strings.HasPrefix(dir, os.TempDir()) {
			t.Errorf("the nodes are in %s", dir)
		}
	})
	t.Run("kcat", func(t *testing.T) { readOdd(t, c) })
	t.Run("follow", func(t *testing.T) { follow(t, c) })
	t.Run("crash", func(t *testing.T) { crash(t, c) })
}

// readOdd reads records with everything that may be null, empty or no text,
// with an aborted transaction before the end, and an open one that is the end.
func readOdd(t *testing.T, c *Cluster) {
	createTopic(t, c, "odd", 3)
	cl := client(t, c.Brokers())
	at := time.UnixMilli(1767225600123)
	key := []byte{0xff, 0, 1, '"', '\\', '\n', '/', 0x7f, 0xe2, 0x80, 0xa8}
	produce(t, cl, &kgo.Record{Topic: "odd", Value: []byte("x"), Timestamp: at})
	produce(t, cl, &kgo.Record{Topic: "odd", Key: []byte{}, Value: []byte{}, Timestamp: time.UnixMilli(-1)})
	produce(t, cl, &kgo.Record{Topic: "odd", Key: key, Timestamp: at})
	produce(t, cl, &kgo.Record{Topic: "odd", Partition: 1, Key: []byte("é"), Timestamp: at,
		Headers: []kgo.RecordHeader{{Key: "h"}, {Key: "h", Value: []byte{}}, {Key: "a,=", Value: []byte{0xfe, '\n', ','}}}})
	tx := client(t, c.Brokers(), kgo.TransactionalID("odd"))
	for _, value := range []string{"aborted", "open"} {
		if err := tx.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		produce(t, tx, &kgo.Record{Topic: "odd", Partition: 1, Value: []byte(value)})
		if value == "aborted" {
			if err := tx.EndTransaction(limit(t, time.Minute), kgo.TryAbort); err != nil {
				t.Fatal(err)
			}
		}
	}
	produce(t, cl, &kgo.Record{Topic: "odd", Partition: 1, Value: []byte("behind")})
	ctx := limit(t, time.Minute)
	got := map[int32][]Record{}
	collect := func(r *Record) error {
		got[r.Partition] = append(got[r.Partition], *r)
		return nil
	}
	kcat := Kcat{Brokers: c.Brokers()}
	ends, err := kcat.Read(ctx, "odd", collect)
	if err != nil {
		t.Fatal(err)
	}
	ms := at.UnixMilli()
	want := map[int32][]Record{
		0: {{"odd", 0, 0, ms, nil, []byte("x"), nil}, {"odd", 0, 1, -1, []byte{}, []byte{}, nil}, {"odd", 0, 2, ms, key, nil, nil}},
		1: {{"odd", 1, 0, ms, []byte("é"), nil, []Header{{"h", nil}, {"h", []byte{}}, {"a,=", []byte{0xfe, '\n', ','}}}}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("kcat read %+v\nwant %+v", got, want)
	}
	if want := map[int32]int64{0: 3, 1: 3, 2: 0}; !reflect.DeepEqual(ends, want) {
		t.Errorf("the ends are %v, want %v", ends, want)
	}
	kcat.Uncommitted = true
	all, err := kcat.All(ctx, "odd")
	if err != nil || len(all) != 7 {
		t.Errorf("without isolation kcat read %d records, want 7: %v", len(all), err)
	}
	if _, err := kcat.All(ctx, "missing"); err == nil || !strings.Contains(err.Error(), "Unknown topic") {
		t.Errorf("a topic that isn't there: %v", err)
	}
	enough := errors.New("enough")
	if _, err := kcat.Read(ctx, "odd", func(*Record) error { return enough }); err != enough {
		t.Errorf("the caller's error came back as %v", err)
	}
}

// follow reads what comes after it has begun, and only that.
func follow(t *testing.T, c *Cluster) {
	createTopic(t, c, "live", 2)
	cl := client(t, c.Brokers())
	produce(t, cl, &kgo.Record{Topic: "live", Value: []byte("old")})
	ctx, cancel := context.WithCancel(limit(t, time.Minute))
	defer cancel()
	ready, got, done := make(chan struct{}), make(chan string, 10), make(chan error, 1)
	go func() {
		done <- Kcat{Brokers: c.Brokers()}.Follow(ctx, "live", 2, func() { close(ready) }, func(r *Record) error {
			got <- string(r.Value)
			return nil
		})
	}()
	for _, value := range []string{"a", "b"} {
		select {
		case <-ready:
		case err := <-done:
			t.Fatalf("kcat ended: %v", err)
		}
		produce(t, cl, &kgo.Record{Topic: "live", Partition: 1, Value: []byte(value)})
		select {
		case v := <-got:
			if v != value {
				t.Fatalf("read %q, want %q", v, value)
			}
		case err := <-done:
			t.Fatalf("kcat ended: %v", err)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Fatalf("after its context's end: %v", err)
	}
}

// crash kills the node within a transaction, which is committed afterwards.
func crash(t *testing.T, c *Cluster) {
	createTopic(t, c, "crash", 1)
	l := newCutLab(t, c.Proxy(), c.Brokers()[0], "crash")
	x := l.begin(t, "")
	if err := x.offsets(l.topic, l.id, 3); err != nil {
		t.Fatal(err)
	}
	ctx := limit(t, 4*time.Minute)
	for range 2 { // to kill what is dead is no error
		if err := c.KillNode(ctx, 1); err != nil {
			t.Fatal(err)
		}
	}
	if err := once(t, c.Proxy().Addrs()).Ping(ctx); err == nil {
		t.Fatal("a killed broker answers")
	}
	for range 2 { // and nor is to start what runs
		if err := c.StartNode(ctx, 1); err != nil {
			t.Fatal(err)
		}
	}
	if err := again(x.ctx, func() error { return x.end(true) }, nil); err != nil {
		t.Fatalf("end the transaction that the crash found open: %v", err)
	}
	// The one answer before a restart isn't the end of all: stop and start cleanly.
	if err := c.StopNode(ctx, 1); err != nil {
		t.Fatal(err)
	}
	if err := c.StartAll(ctx); err != nil {
		t.Fatal(err)
	}
	offset := func() error {
		offsets, err := kadm.NewClient(l.direct).FetchOffsets(ctx, x.id)
		if o, _ := offsets.Lookup(l.topic, 0); err == nil && o.At != 3 {
			err = fmt.Errorf("the offset is %d, want 3", o.At)
		}
		return err
	}
	if err := again(ctx, offset, nil); err != nil {
		t.Fatal(err)
	}
}

// One node of three dies and what is acknowledged stays readable; two have the
// quorum and the in-sync minimum.
func TestThreeNodes(t *testing.T) {
	NeedKcat(t)
	c := startCluster(t, Options{Nodes: 3})
	createTopic(t, c, "t", 6)
	ctx := limit(t, 4*time.Minute)
	cl := client(t, c.Brokers())
	var n int
	write := func() {
		for p := range int32(6) {
			produce(t, cl, &kgo.Record{Topic: "t", Partition: p, Value: fmt.Append(nil, n)})
			n++
		}
	}
	write()
	if err := c.KillNode(ctx, 2); err != nil {
		t.Fatal(err)
	}
	write()
	if err := c.StartNode(ctx, 2); err != nil {
		t.Fatal(err)
	}
	write()
	topics, err := kadm.NewClient(cl).ListTopics(ctx, "t")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range topics["t"].Partitions {
		if len(p.Replicas) != 3 {
			t.Errorf("partition %d has %d replicas, want 3", p.Partition, len(p.Replicas))
		}
	}
	all, err := Kcat{Brokers: c.Brokers()}.All(ctx, "t")
	if err != nil || len(all) != n {
		t.Fatalf("kcat read %d records of %d: %v", len(all), n, err)
	}
	if err := c.KillNode(ctx, 4); err == nil {
		t.Fatal("a node that isn't there was killed")
	}
}

// A folder that is taken, and a setting that the broker refuses, are said in its words.
func TestStartRefuses(t *testing.T) {
	Need(t)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "bootstrap"), []byte("127.0.0.1:1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Start(t.Context(), Options{Dir: dir}); err == nil || !strings.Contains(err.Error(), "already") {
		t.Fatalf("a folder that holds a cluster: %v", err)
	}
	_, err := Start(limit(t, time.Minute), Options{Dir: filepath.Join(t.TempDir(), "kafka"), Settings: []string{"process.roles=nonsense"}})
	if err == nil || !strings.Contains(err.Error(), "nonsense") {
		t.Fatalf("a setting that isn't one: %v", err)
	}
}
