package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"github.com/weirstream/weir/internal/chaos/trial"
	"github.com/weirstream/weir/internal/kafkalab"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestOracle holds the oracle to tables that another engine has computed.
func TestOracle(t *testing.T) {
	b, err := os.ReadFile("../../../testdata/clicks-10k.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	var clicks []click
	for line := range bytes.Lines(b) {
		c, err := parseClick(line)
		if err != nil {
			t.Fatal(err)
		}
		clicks = append(clicks, c)
	}
	for _, c := range []struct {
		name string
		r    trial.Rules
	}{
		{"clicks_ad_minute_dedup", trial.Rules{Dedup: 60 * minute, Disorder: 30_000, Lateness: 30 * minute}},
		{"clicks_ad_minute_raw", trial.Rules{Dedup: 0, Disorder: 30_000, Lateness: 30 * minute}},
		{"clicks_ad_minute_dedup_wm30s", trial.Rules{Dedup: 60 * minute, Disorder: 30_000, Lateness: 0}},
		{"clicks_ad_minute_raw_wm30s", trial.Rules{Dedup: 0, Disorder: 30_000, Lateness: 0}},
	} {
		got := newTally(c.r)
		if err := got.all(map[string][]click{"x": clicks}); err != nil {
			t.Fatal(err)
		}
		if want := expected(t, c.name); !maps.Equal(got.table, want) {
			t.Errorf("%s: %d windows, want %d, or other counts", c.name, len(got.table), len(want))
		}
	}
}

func expected(t *testing.T, name string) table {
	t.Helper()
	b, err := os.ReadFile("../../../testdata/expected/" + name + ".csv")
	if err != nil {
		t.Fatal(err)
	}
	lines, err := csv.NewReader(bytes.NewReader(b)).ReadAll()
	if err != nil || len(lines) < 2 {
		t.Fatalf("%s: %d lines, %v", name, len(lines), err)
	}
	want := table{}
	for _, l := range lines[1:] {
		row := map[string]string{}
		for i, v := range l {
			row[lines[0][i]] = v
		}
		n, err := strconv.ParseInt(row["clicks"], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		want[cell{row["ad_id"], row["window_start"]}] = n
	}
	return want
}

// TestAdvance: counting in steps gives what counting at once does, and says of
// each step which windows it has changed.
func TestAdvance(t *testing.T) {
	const seed = 7
	r := trial.Rules{Dedup: 5 * minute, Disorder: 30_000, Lateness: 30 * minute}
	g := newGenerator(rand.New(rand.NewPCG(seed, 1)), r, 100)
	in := map[string][]click{}
	for range 40_000 {
		c := g.next()
		split := fmt.Sprint(c.partition(3))
		in[split] = append(in[split], c)
	}
	whole, steps, last := newTally(r), newTally(r), table{}
	if err := whole.all(in); err != nil {
		t.Fatal(err)
	}
	for step := range 20 {
		read := map[string]int64{}
		for split, cs := range in {
			read[split] = int64(len(cs) * (step + 1) / 20)
		}
		changed, err := steps.advance(in, read)
		if err != nil {
			t.Fatal(err)
		}
		for k, n := range changed {
			if n <= last[k] {
				t.Errorf("seed %d: step %d changed %s from %d to %d", seed, step, k.key(), last[k], n)
			}
			last[k] = n
		}
	}
	if !maps.Equal(last, whole.table) || !maps.Equal(steps.table, whole.table) {
		t.Errorf("seed %d: in steps %d windows, at once %d, or other counts", seed, len(last), len(whole.table))
	}
	if _, err := steps.advance(in, map[string]int64{"0": 1}); err == nil {
		t.Error("going back was taken")
	}
	if _, err := steps.advance(in, map[string]int64{"0": 1e9}); err == nil {
		t.Error("more than there is was taken")
	}
}

// TestGenerated: there are late, far too late and repeated clicks, and they come
// back from their lines as they were.
func TestGenerated(t *testing.T) {
	const seed, n = 7, 40_000
	r := trial.Rules{Dedup: 60 * minute, Disorder: 30_000, Lateness: 30 * minute}
	g := newGenerator(rand.New(rand.NewPCG(seed, 1)), r, 100)
	var late, hopelessly, repeated int
	var newest int64
	partitions := map[string]int32{}
	for range n {
		c := g.next()
		back, err := parseClick(c.line())
		if err != nil || back != c {
			t.Fatalf("%s: %v, %v, want %v", c.line(), back, err, c)
		}
		p, seen := partitions[c.id]
		if p != c.partition(4) && seen {
			t.Fatalf("%s is in partitions %d and %d", c.id, p, c.partition(4))
		}
		if partitions[c.id] = c.partition(4); seen {
			repeated++
		}
		switch behind := newest - r.Disorder - c.at; {
		case behind > hopeless-minute:
			hopelessly++
		case behind > timely:
			t.Fatalf("seed %d: %s is %d ms behind: between what counts and what doesn't", seed, c.line(), behind)
		case behind > 0:
			late++
		}
		newest = max(newest, c.at)
	}
	if late < n/500 || hopelessly < n/1000 || repeated < n/100 {
		t.Errorf("seed %d: %d late, %d far too late, %d repeated", seed, late, hopelessly, repeated)
	}
}

func recordOf(partition int32, offset int64, ad string, clicks int64) kafkalab.Record {
	const m = "2026-01-01T00:00:00Z"
	return kafkalab.Record{Partition: partition, Offset: offset, Key: []byte(ad + "|" + m),
		Value: fmt.Appendf(nil, `{"ad_id":%q,"minute":%q,"clicks":%d}`, ad, m, clicks)}
}

// TestSequence shows outputs to the harness that must not be.
func TestSequence(t *testing.T) {
	const m = "2026-01-01T00:00:00Z"
	want := table{cell{"a", m}: 3, cell{"b", m}: 1}
	b := recordOf(1, 0, "b", 1)
	for _, c := range []struct {
		name               string
		recs               []kafkalab.Record
		lost, dup, changed int
	}{
		{name: "right", recs: []kafkalab.Record{recordOf(0, 0, "a", 1), recordOf(0, 2, "a", 3), b}},
		{name: "repeated", recs: []kafkalab.Record{recordOf(0, 0, "a", 3), recordOf(0, 1, "a", 3), b}, dup: 1},
		{name: "going back", recs: []kafkalab.Record{recordOf(0, 0, "a", 3), recordOf(0, 1, "a", 2), b}, dup: 1},
		{name: "missing", recs: []kafkalab.Record{recordOf(0, 0, "a", 3)}, lost: 1},
		{name: "the last is missing", recs: []kafkalab.Record{recordOf(0, 0, "a", 2), b}, lost: 1},
		{name: "too many", recs: []kafkalab.Record{recordOf(0, 0, "a", 4), b}, changed: 1},
		{name: "nobody's", recs: []kafkalab.Record{recordOf(0, 0, "a", 3), b, recordOf(0, 1, "x", 1)}, changed: 1},
		{name: "in two partitions", recs: []kafkalab.Record{recordOf(0, 0, "a", 1), recordOf(1, 5, "a", 3), b}, changed: 1},
	} {
		out, err := updates(c.recs)
		if err != nil {
			t.Fatal(err)
		}
		v := sequence(out, want)
		if v.lost != c.lost || v.dup != c.dup || v.changed != c.changed {
			t.Errorf("%s: %d lost, %d dup, %d changed:%s", c.name, v.lost, v.dup, v.changed, v.list())
		}
	}
	for _, value := range []string{"", "{}", `{"ad_id":"a","minute":"m","clicks":1,"more":1}`, `{"ad_id":"b","minute":"` + m + `","clicks":1}`} {
		r := recordOf(0, 0, "a", 1)
		r.Value = []byte(value)
		if _, err := updates([]kafkalab.Record{r}); err == nil {
			t.Errorf("the value %q was taken", value)
		}
	}
}

func TestEpoch(t *testing.T) {
	const m = "2026-01-01T00:00:00Z"
	a, b := update{cell: cell{"a", m}, clicks: 2}, update{cell: cell{"b", m}, clicks: 1}
	wrong := a
	wrong.clicks = 3
	want := map[cell]int64{a.cell: 2, b.cell: 1}
	for _, c := range []struct {
		name               string
		got                []update
		lost, dup, changed int
	}{
		{name: "right", got: []update{b, a}},
		{name: "half", got: []update{b}, lost: 1},
		{name: "twice", got: []update{b, a, a}, dup: 1},
		{name: "another count", got: []update{b, wrong}, changed: 1},
		{name: "of another epoch", got: []update{b, a, {cell: cell{"c", m}, clicks: 1}}, changed: 1},
	} {
		v := verdict{}
		v.epoch(1, c.got, want)
		if v.lost != c.lost || v.dup != c.dup || v.changed != c.changed {
			t.Errorf("%s: %d lost, %d dup, %d changed:%s", c.name, v.lost, v.dup, v.changed, v.list())
		}
	}
}

// TestTrace follows a worker from its start through two epochs that overlap.
func TestTrace(t *testing.T) {
	const a, b = "job-0-a", "job-0-b"
	asks := func(key int16, id string, more ...func(*event)) event {
		e := event{key: key, txid: id, commit: true}
		for _, m := range more {
			m(&e)
		}
		return e
	}
	answer := func(e *event) { e.answer, e.ok = true, true }
	out := func(e *event) { e.topic = outputTopic }
	control := func(e *event) { e.topic = controlTopic }
	tr := newTrace(true)
	if p := tr.phase(store{}); p != starting {
		t.Errorf("before everything: %s", p.name)
	}
	for i, step := range []struct {
		e    event
		want phase
	}{
		{event{key: 3}, reaching},
		{asks(keyInitProducer, a), fencing},
		{asks(keyInitProducer, b), fencing},
		{asks(keyInitProducer, b, answer), fencedOne},
		{asks(keyInitProducer, a, answer), claiming},
		{event{key: keyFetch}, claiming},
		{asks(keyProduce, b, control), claiming},
		{asks(keyEndTxn, b, answer), restoring},
		{event{key: keyFetch, input: true}, waiting},
		{asks(keyProduce, a, out), open},
		{asks(keyProduce, a, control), naming},
		{asks(keyProduce, b, out), naming},
		{asks(keyProduce, a, control, answer), named},
		{asks(keyTxnOffset, a), offsets},
		{asks(keyTxnOffset, a, answer), added},
		{asks(keyEndTxn, a), ending},
		{asks(keyProduce, b, out, answer), ending},
		{asks(keyEndTxn, a, answer), ended},
		{asks(keyProduce, b, out), open},
		{asks(keyInitProducer, a), fencing}, // it recovers in place
	} {
		if tr.note(step.e); tr.phase(store{}) != step.want {
			t.Errorf("step %d, %+v: %s, want %s", i, step.e, tr.phase(store{}).name, step.want.name)
		}
	}
	if n := tr.committed(); n != 1 {
		t.Errorf("%d committed", n)
	}
	tr.freeze()
	if tr.note(asks(keyEndTxn, b, answer)); tr.committed() != 1 {
		t.Error("a frozen trace goes on")
	}
}

// TestMoments: every moment that a job has comes soon, and none that it hasn't.
func TestMoments(t *testing.T) {
	for seed := range uint64(50) {
		for _, r := range append([]recipe{kafkaToKafka}, others...) {
			d, had := &moments{rng: newRand(seed, 1)}, map[string]bool{}
			for range 200 {
				m := d.next(r)
				if !r.has(m) {
					t.Fatalf("seed %d: %s for %s", seed, m, r.name)
				}
				had[fmt.Sprint(m.what, m.answer)] = true
			}
			for _, m := range path {
				if r.has(m) && !had[fmt.Sprint(m.what, m.answer)] {
					t.Errorf("seed %d: no %s for %s in 200", seed, m, r.name)
				}
			}
		}
	}
}

// broker answers every FindCoordinator request with its own address, until its
// listener is closed.
func broker(t *testing.T) (address string, stop func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			for {
				frame, err := readFrame(c)
				if err != nil {
					break
				}
				a, err := parseRequest(frame[4:])
				if err != nil {
					t.Error(err)
					break
				}
				host, port, _ := net.SplitHostPort(l.Addr().String())
				resp := a.req.ResponseKind().(*kmsg.FindCoordinatorResponse)
				resp.Version = a.req.GetVersion()
				n, _ := strconv.Atoi(port)
				resp.Coordinators = []kmsg.FindCoordinatorResponseCoordinator{{Key: "x", NodeID: 1, Host: host, Port: int32(n)}}
				_, _ = c.Write(framed(a.correlation, resp.AppendTo(nil)))
			}
			_ = c.Close()
		}
	}()
	return l.Addr().String(), func() { _ = l.Close(); <-done }
}

func framed(correlation int32, body []byte) []byte {
	b := []byte{0, 0, 0, 0, byte(correlation >> 24), byte(correlation >> 16), byte(correlation >> 8), byte(correlation), 0}
	b = append(b, body...)
	n := len(b) - 4
	b[0], b[1], b[2], b[3] = byte(n>>24), byte(n>>16), byte(n>>8), byte(n)
	return b
}

// TestProxy: it puts its own address in the broker's place, and cuts where it is
// told to.
func TestProxy(t *testing.T) {
	address, stop := broker(t)
	defer stop()
	seen := make(chan bool, 10)
	var cutAsked, cutAnswered atomic.Bool
	p, err := newProxy([]string{address}, func(_ kmsg.Request, resp kmsg.Response) bool {
		seen <- resp != nil
		return resp == nil && cutAsked.Load() || resp != nil && cutAnswered.Load()
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := p.close(); err != nil {
			t.Error(err)
		}
	}()
	ask := func() (*kmsg.FindCoordinatorResponse, error) {
		c, err := net.Dial("tcp", p.brokers()[0])
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		req := kmsg.NewPtrFindCoordinatorRequest()
		req.Version, req.CoordinatorKeys = 4, []string{"x"}
		body := append([]byte{0, 10, 0, 4, 0, 0, 0, 7, 0xff, 0xff, 0}, req.AppendTo(nil)...)
		frame := append([]byte{0, 0, 0, byte(len(body))}, body...)
		if _, err := c.Write(frame); err != nil {
			return nil, err
		}
		got, err := readFrame(c)
		if err != nil {
			return nil, err
		}
		resp := kmsg.NewPtrFindCoordinatorResponse()
		resp.Version = 4
		return resp, resp.ReadFrom(got[9:])
	}
	resp, err := ask()
	if err != nil {
		t.Fatal(err)
	}
	if at := fmt.Sprintf("%s:%d", resp.Coordinators[0].Host, resp.Coordinators[0].Port); at != p.brokers()[0] {
		t.Errorf("the coordinator is at %s, want %s", at, p.brokers()[0])
	}
	if <-seen || !<-seen {
		t.Error("not the request first, and then the answer")
	}
	cutAsked.Store(true)
	if _, err := ask(); err != io.EOF || <-seen || len(seen) > 0 {
		t.Errorf("cut before: %v, %d more", err, len(seen))
	}
	cutAsked.Store(false)
	cutAnswered.Store(true)
	if _, err := ask(); err != io.EOF || <-seen || !<-seen {
		t.Errorf("cut after: %v", err)
	}
}

func TestFlags(t *testing.T) {
	for _, args := range [][]string{{"more"}, {"-no"}, {"-only", "nothing"}} {
		var out, errs bytes.Buffer
		if code := run(context.Background(), args, &out, &errs); code != 2 || errs.Len() == 0 {
			t.Errorf("%v: exit code %d: %s", args, code, &errs)
		}
	}
}

// TestStore: a folder without a log is a job that hasn't begun, and half an entry
// is said.
func TestStore(t *testing.T) {
	s, err := readStore(t.TempDir())
	if err != nil || len(s.entries) > 0 || s.incarnation() != 0 {
		t.Errorf("an empty folder: %v, %v", s, err)
	}
	dir := t.TempDir()
	if err := os.Mkdir(dir+"/log", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir+"/log/000000000001", []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readStore(dir); err == nil || !strings.Contains(err.Error(), "isn't a whole entry") {
		t.Errorf("half an entry: %v", err)
	}
}
