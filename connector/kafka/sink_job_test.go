package kafka

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/codec"
	"github.com/weirstream/weir/connector/file"
	"github.com/weirstream/weir/connector/kafka/kafkatest"
	"github.com/weirstream/weir/connector/sqlite"
	"github.com/weirstream/weir/internal/sys"
)

// click is a line of the job's input.
type click struct {
	ID string `json:"id"`
	Ad string `json:"ad"`
}

type total struct {
	Ad     string `db:"ad" json:"ad"`
	Clicks int64  `db:"clicks" json:"clicks"`
}

// jobOfAll reads lines and writes them to a topic, counts by ad to another, the totals
// to a database, the clicks to files, and what it can't read to a third topic. Kafka
// decides; database and files follow.
type jobOfAll struct {
	*scene
	input, db, files, state string
	counts, dead            string // topics
}

func (j *jobOfAll) declare() *weir.Job {
	c := j.cluster()
	job := weir.NewJob(j.job.Name)
	clicks := job.From("clicks", file.Lines(j.input, codec.JSON[click]()))
	clicks.To("ids", Sink(c, j.topic, func(r *click, m *Message) error {
		m.Key, m.Value = append(m.Key, r.ID...), append(m.Value, r.Ad...)
		return nil
	}, CreateTopics(3, 0)))
	clicks.To("files", file.JSONLines[click](j.files))
	counts := clicks.KeyBy(func(r click) string { return r.Ad }).Count("n").
		Map(func(p weir.Pair[string, int64]) total { return total{p.Key, p.Value} })
	counts.To("counts", Sink(c, j.counts, func(r *total, m *Message) error {
		m.Key, m.Value = append(m.Key, r.Ad...), strconv.AppendInt(m.Value, r.Clicks, 10)
		return nil
	}, CreateTopics(2, 0)))
	counts.To("totals", sqlite.Upsert[total](j.db, "totals", "ad"))
	job.DeadLetters("dead", DeadLetters(c, j.dead, CreateTopics(1, 0)), weir.MaxDeadLetters(-1, 0))
	return job
}

// What a job writes to Kafka, a database and files is all there once, whatever kills
// it, and as often as that happens.
func TestJobWithFollowers(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	dir := t.TempDir()
	j := &jobOfAll{scene: stage(t, 0), input: filepath.Join(dir, "clicks.jsonl"), db: filepath.Join(dir, "totals.db"),
		files: filepath.Join(dir, "files"), state: filepath.Join(dir, "state")}
	j.counts, j.dead = j.job.Name+".counts", j.job.Name+".dead"
	var lines, ids, counts, letters []string
	perAd := map[string]int{}
	for i := range 1500 {
		if rng.IntN(20) == 0 {
			bad := fmt.Sprintf(`{"id": "bad-%d", "ad"`, i)
			lines, letters = append(lines, bad), append(letters, bad)
			continue
		}
		ad := fmt.Sprintf("ad-%d", rng.IntN(7))
		perAd[ad]++
		lines = append(lines, fmt.Sprintf(`{"id":"id-%d","ad":%q}`, i, ad))
		ids = append(ids, fmt.Sprintf("id-%d=%s", i, ad))
		counts = append(counts, fmt.Sprintf("%s=%d", ad, perAd[ad]))
	}
	check(t, os.WriteFile(j.input, []byte(strings.Join(lines, "\n")+"\n"), 0o600))
	lives := 0
	for done := false; !done; lives++ {
		done = j.live(t, 1+rng.IntN(5), 1+rng.IntN(2))
	}
	t.Logf("%d lives", lives)
	if lives < 3 {
		t.Errorf("the job was killed %d times only", lives-1)
	}
	sorted := func(topic string) []string { got := j.read(topic); slices.Sort(got); return got }
	slices.Sort(ids)
	slices.Sort(counts)
	equal(t, "ids", sorted(j.topic), ids...)
	equal(t, "counts", sorted(j.counts), counts...)
	var dead []string
	for _, m := range kafkatest.ReadCommitted(t, j.brokers, j.dead) {
		dead = append(dead, string(m.Value))
	}
	equal(t, "dead letters", dead, letters...)
	j.checkFollowers(t, perAd, ids)
}

// live runs the job until so many checkpoints were taken, and then kills it. It
// reports whether the job came to its end before.
func (j *jobOfAll) live(t *testing.T, checkpoints, parallelism int) bool {
	t.Helper()
	ctx, kill := context.WithCancelCause(t.Context())
	defer kill(nil)
	err := j.declare().Run(ctx, weir.StateDir(j.state), weir.Interval(0), weir.EveryRecords(60), weir.BatchSize(16), weir.Parallelism(parallelism), weir.Restarts(0),
		weir.OnCheckpoint(func(weir.Checkpoint) {
			if checkpoints--; checkpoints == 0 {
				kill(sys.ErrKilled)
			}
		}))
	if err != nil && !errors.Is(err, sys.ErrKilled) {
		t.Fatal(err)
	}
	return err == nil
}

func (j *jobOfAll) checkFollowers(t *testing.T, perAd map[string]int, ids []string) {
	t.Helper()
	db, err := sql.Open("sqlite", j.db)
	check(t, err)
	defer db.Close()
	rows, err := db.Query("SELECT ad, clicks FROM totals")
	check(t, err)
	defer rows.Close()
	totals := map[string]int{}
	for rows.Next() {
		var ad string
		var n int
		check(t, rows.Scan(&ad, &n))
		totals[ad] = n
	}
	check(t, rows.Err())
	if diff := cmp.Diff(perAd, totals); diff != "" {
		t.Errorf("the database (-want +got):\n%s", diff)
	}
	names, err := filepath.Glob(filepath.Join(j.files, "*.jsonl"))
	check(t, err)
	var got []string
	for _, name := range names {
		b, err := os.ReadFile(name)
		check(t, err)
		for line := range strings.Lines(string(b)) {
			id, ad, _ := strings.Cut(strings.NewReplacer(`{"id":"`, "", `","ad":"`, "=", "\"}\n", "").Replace(line), "=")
			got = append(got, id+"="+ad)
		}
	}
	slices.Sort(got)
	equal(t, "files", got, ids...)
}

// A job whose checkpoints are further apart than its transactions may last takes them
// early: what it writes is visible in time, and once.
func TestLongInterval(t *testing.T) {
	s := stage(t, 2)
	dir := t.TempDir()
	path := filepath.Join(dir, "lines.txt")
	f, err := os.Create(path)
	check(t, err)
	defer f.Close()
	job := weir.NewJob(s.job.Name)
	job.From("lines", file.Lines(path, codec.String(), file.Follow(file.Poll(5*time.Millisecond)))).
		To("out", Sink(s.cluster(), s.topic, func(r *string, m *Message) error {
			m.Key, m.Value = append(m.Key, *r...), append(m.Value, 'v')
			return nil
		}, TransactionTimeout(2*time.Second)))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- job.Run(ctx, weir.StateDir(filepath.Join(dir, "state")), weir.Interval(time.Hour), weir.Restarts(0))
	}()
	var want []string
	for round := range 3 {
		for i := range 50 {
			line := fmt.Sprintf("line %d %d", round, i)
			_, err := fmt.Fprintln(f, line)
			check(t, err)
			want = append(want, line+"=v")
		}
		for seen := 0; seen < len(want); { // for as long as it takes
			select {
			case err := <-ended:
				t.Fatalf("the job has ended: %v", err)
			default:
				seen = len(kafkatest.ReadCommitted(t, s.brokers, s.topic))
			}
		}
	}
	stop()
	check(t, <-ended)
	got := s.read(s.topic)
	slices.Sort(got)
	slices.Sort(want)
	equal(t, "topic", got, want...)
}

// explain names topic, isolation level and broker condition.
func TestExplain(t *testing.T) {
	c := NewCluster([]string{"127.0.0.1:1"})
	job := weir.NewJob("job")
	s := job.From("in", weir.Slices([]string{"a"}))
	s.To("out", Sink(c, "counts", func(r *string, m *Message) error { return nil }, AlsoTo("more")))
	s.To("soon", Sink(c, "alerts", func(r *string, m *Message) error { return nil }, AtLeastOnce()))
	e, err := job.Explain(t.Context(), weir.StateDir(t.TempDir()))
	check(t, err)
	text := e.String()
	for _, want := range []string{"topic counts and more", "isolation.level=read_committed", "brokers from 4.0 on with transaction.version finalized at 2", "acks=all",
		"at least once", "topic alerts", "transaction timeout"} {
		if !strings.Contains(text, want) {
			t.Errorf("explain doesn't say %q:\n%s", want, text)
		}
	}
}

// Sinks that can't be told to share one producer say so before anything runs.
func TestDeclaration(t *testing.T) {
	brokers := []string{"127.0.0.1:1"}
	c := NewCluster(brokers)
	sink := func(c *Cluster, topic string, opts ...SinkOption) error {
		return Sink(c, topic, copies, opts...).(interface{ Check() error }).Check()
	}
	check(t, sink(c, "a", TransactionTimeout(time.Second), Compression(Zstd), Linger(0)))
	check(t, sink(c, "b", TransactionTimeout(time.Second), Compression(Zstd), Linger(0)))
	check(t, sink(c, "c"))
	for want, err := range map[string]error{
		"TransactionTimeout is 2s here and 1s": sink(c, "d", TransactionTimeout(2*time.Second)),
		"Compression is lz4 here and zstd":     sink(c, "d", Compression(LZ4)),
		"Linger is 1ms here and 0s":            sink(c, "d", Linger(time.Millisecond)),
		`topic "no name"`:                      sink(c, "no name"),
		"topic a is named twice":               sink(c, "a", AlsoTo("b", "a")),
		"the encoder is nil":                   Sink[int](c, "a", nil).(interface{ Check() error }).Check(),
		"CreateTopics(-1, 0)":                  sink(c, "a", CreateTopics(-1, 0)),
		`"cleanup.policy" isn't name=value`:    sink(c, "a", CreateTopics(1, 1, "cleanup.policy")),
		"is given twice":                       sink(c, "a", CreateTopics(1, 1, "x=1", "x=2")),
		`Compression("brotli")`:                sink(c, "a", Compression("brotli")),
		"TransactionTimeout(1ms)":              sink(c, "a", TransactionTimeout(time.Millisecond)),
		"Linger(-1ns)":                         sink(c, "a", Linger(-1)),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
}

// Two clusters under one name can't be told apart by the job's checkpoints.
func TestTwoClusters(t *testing.T) {
	s := stage(t, 1)
	l := begin(t, s, s.sink(), 1)
	far := Sink(NewCluster([]string{"127.0.0.1:1"}), "elsewhere", copies)
	_, err := far.Open(t.Context(), l.p, "out")
	says(t, err, weir.ErrRefused, "127.0.0.1:1", "Name")
	named := Sink(NewCluster([]string{"127.0.0.1:1"}, Name("far")), "elsewhere", copies)
	if a, b := far.Spec().Participant, named.Spec().Participant; a == b || b != "kafka far" {
		t.Errorf("the participants are %q and %q", a, b)
	}
	again := Sink(s.cluster(), s.topic, copies) // declared a second time, and the same
	p, err := again.Connect(t.Context(), []string{"one", "two"})
	check(t, err)
	defer p.Close()
	_, err = p.Fence(t.Context(), weir.Fence{Job: weir.JobID{Name: s.job.Name + "-2", UUID: "u"}, By: weir.Incarnation{Number: 1, Nonce: "n"}, Create: true})
	check(t, err)
	_, err = again.Open(t.Context(), p, "one")
	check(t, err)
	_, err = Sink(s.cluster(), s.topic, copies).Open(t.Context(), p, "two")
	check(t, err)
	if _, err = again.Open(t.Context(), p, "two"); err == nil || !strings.Contains(err.Error(), "opened twice") {
		t.Errorf("opened twice: %v", err)
	}
	if _, err = again.Open(t.Context(), p, "three"); err == nil || !strings.Contains(err.Error(), "connected for [one two] only") {
		t.Errorf("a sink that wasn't connected: %v", err)
	}
}
