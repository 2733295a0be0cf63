package main

import (
	"context"
	"encoding/csv"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/weirstream/weir/connector/kafka/kafkatest"
	"github.com/weirstream/weir/internal/process"
)

// TestExpectedCounts holds the real binary to tables that another engine has
// computed from the same clicks, whatever the parallelism, the partitions, the codec
// and the guarantee.
func TestExpectedCounts(t *testing.T) {
	raw, dedup := expected(t, "clicks_ad_minute_raw"), expected(t, "clicks_ad_minute_dedup")
	for _, c := range []struct {
		partitions int
		want       counts
		flags      []string
	}{
		{1, raw, []string{"--parallelism", "1"}},
		{4, raw, []string{"--parallelism", "2", "--checkpoint-interval", "50ms"}},
		{3, raw, []string{"--parallelism", "7", "--batch-size", "7", "--codec", "fast"}},
		{4, raw, []string{"--guarantee", "at-least-once", "--parallelism", "2"}},
		{1, dedup, []string{"--dedup", "1h", "--parallelism", "1", "--codec", "fast"}},
		{4, dedup, []string{"--dedup", "1h", "--parallelism", "2", "--checkpoint-interval", "50ms"}},
		{7, dedup, []string{"--dedup", "1h", "--parallelism", "3", "--codec", "fast", "--checkpoint-interval", "20ms"}},
		{4, dedup, []string{"--dedup", "1h", "--guarantee", "at-least-once", "--checkpoint-interval", "20ms"}},
	} {
		t.Run(fmt.Sprint(c.partitions, c.flags), func(t *testing.T) {
			at := newPlace(t, c.partitions)
			at.produce(at.file()...)
			launch(t, at.args(append(c.flags, "--bounded")...)...).Ends(0, "finished: 10,000 records")
			at.compare(c.want, true) // at once: when the job has ended well, readers see all of it
			at.wantLag(0)
			launch(t, at.args(append(c.flags, "--bounded")...)...).Ends(0, "nothing to do")
			at.want(c.want)
		})
	}
}

// TestLateClicks has a partition hold everything in the order of the file: clicks
// that come later than the windows allow are left out, as in that engine's tables.
func TestLateClicks(t *testing.T) {
	at := newPlace(t, 1)
	at.produce(at.file()...)
	launch(t, at.args("--bounded", "--lateness", "0", "--dedup", "1h")...).Ends(0, "finished: 10,000 records")
	at.want(expected(t, "clicks_ad_minute_dedup_wm30s"))
}

// TestFirstTry is what a newcomer does: fill a topic, which is made, and count it
// into another one that is made.
func TestFirstTry(t *testing.T) {
	at := newPlace(t, 1)
	at.input, at.output = kafkatest.Name(t), kafkatest.Name(t)
	t.Cleanup(func() { at.drop(at.input, at.output) })
	produce := []string{"produce", "--brokers", at.list(), "--input", at.input, "--file", clicks10k, "--partitions", "3"}
	launch(t, produce...).Ends(0, "10000 clicks written to topic "+at.input)
	in := map[string]int32{}
	for _, r := range kafkatest.ReadCommitted(t, at.brokers, at.input) {
		if p, ok := in[string(r.Key)]; ok && p != r.Partition {
			t.Fatalf("click %s is in partitions %d and %d", r.Key, p, r.Partition)
		}
		in[string(r.Key)] = r.Partition
	}
	if len(in) != 9_900 {
		t.Errorf("%d different keys, want 9,900", len(in))
	}
	launch(t, at.args("--dedup", "1h", "--stop-at-end", "--partitions", "5")...).Ends(0, "ended: 10,000 records")
	at.want(expected(t, "clicks_ad_minute_dedup"))
	for topic, want := range map[string]int{at.input: 3, at.output: 5} {
		if n := at.partitionsOf(topic); n != want {
			t.Errorf("topic %s has %d partitions, want %d", topic, n, want)
		}
	}
}

// TestInputThatIsMissing is made when the job first starts, and not again: later it
// would be another one.
func TestInputThatIsMissing(t *testing.T) {
	at := newPlace(t, 1)
	at.input = kafkatest.Name(t)
	t.Cleanup(func() { at.drop(at.input) })
	launch(t, "plan", "--brokers", at.list(), "--input", at.input, "--output", at.output).Ends(0)
	if n := at.partitionsOf(at.input); n != 0 {
		t.Fatalf("a verb that only looks has made the input, with %d partitions", n)
	}
	at.partitions = 2
	job := launch(t, at.args("--partitions", "2", "--checkpoint-interval", "50ms")...)
	job.Until("started for the first time")
	at.produce(at.made(0, 100)...)
	at.shows(job, madeCounts(100))
	job.Stop()
	at.drop(at.input)
	launch(t, at.args("--partitions", "2")...).Ends(11, at.input)
	if n := at.partitionsOf(at.input); n != 0 {
		t.Errorf("the input that was lost was made anew, with %d partitions", n)
	}
}

func (p *place) drop(topics ...string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), process.Deadline)
	defer cancel()
	if deleted, err := p.adm.DeleteTopics(ctx, topics...); err != nil || deleted.Error() != nil {
		p.t.Logf("delete topics %v: %v, %v", topics, err, deleted.Error())
	}
}

// partitionsOf is 0 for a topic that doesn't exist.
func (p *place) partitionsOf(topic string) int {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), process.Deadline)
	defer cancel()
	topics, err := p.adm.ListTopics(ctx, topic)
	if err != nil {
		p.t.Fatal(err)
	}
	return len(topics[topic].Partitions)
}

// TestRefusals is what a user who has made a mistake reads, and the exit code that a
// script sees. None of it changes what the cluster holds of a job.
func TestRefusals(t *testing.T) {
	at := newPlace(t, 1)
	at.produce(at.made(0, 10)...)
	launch(t, at.args("--stop-at-end")...).Ends(0)
	other := filepath.Join(t.TempDir(), "other")
	for _, c := range []struct {
		name string
		args []string
		code int
		says []string
	}{
		{"no brokers", []string{"run", "--input", at.input, "--output", at.output, "--state", at.state}, 2, []string{"--brokers", "WEIR_BROKERS"}},
		{"no state directory", []string{"run", "--brokers", at.list(), "--input", at.input, "--output", at.output}, 2, []string{"--state"}},
		{"no start", at.args("--start", "yesterday"), 2, []string{"--start", "yesterday", "earliest"}},
		{"no such codec", at.args("--codec", "xml"), 2, []string{"--codec", "xml", "v2, fast"}},
		{"no such guarantee", at.args("--guarantee", "mostly"), 2, []string{"--guarantee", "mostly", "at-least-once"}},
		{"two ends", at.args("--bounded", "--stop-at-end"), 2, []string{"Bounded", "StopAtEnd"}},
		{"negative duration", at.args("--dedup", "-1h"), 2, []string{"-1h"}},
		{"no partitions", at.args("--partitions", "-1"), 2, []string{"-1"}},
		{"no topic's name", at.args("--input", "a b"), 2, []string{`"a b"`}},
		{"in a circle", at.args("--output", at.input), 2, []string{at.input, "another topic"}},
		{"letters in a circle", at.args("--dead-letters", at.input), 2, []string{"--dead-letters", at.input, "another topic"}},
		{"letters among counts", at.args("--dead-letters", at.output), 2, []string{"--dead-letters", at.output, "another topic"}},
		{"another input", at.args("--input", kafkatest.Topic(t, at.brokers, 1)), 11, []string{at.input}},
		{"another output", at.args("--output", at.output+"2"), 11, []string{at.output + "2", "set it back"}},
		{"another guarantee", at.args("--guarantee", "at-least-once"), 11, []string{"counts", "set it back"}},
		{"another state directory", at.args("--state", other), 11, []string{at.control(), "--start-over"}},
		{"a transaction that no broker allows", at.args("--transaction-timeout", "24h"), 11, []string{"transaction.max.timeout.ms"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			launch(t, c.args...).Ends(c.code, append(c.says, "error: ")...)
		})
	}
	at.want(madeCounts(10))
	at.produce(at.made(10, 20)...)
	launch(t, at.args("--stop-at-end")...).Ends(0, "restored checkpoint")
	at.want(madeCounts(20))
}

// expected reads a table beside the clicks.
func expected(t *testing.T, name string) counts {
	t.Helper()
	f, err := os.Open("../../testdata/expected/" + name + ".csv")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	column := map[string]int{}
	for i, name := range lines[0] {
		column[name] = i
	}
	c := counts{}
	for _, l := range lines[1:] {
		n, err := strconv.ParseInt(l[column["clicks"]], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		c[l[column["ad_id"]]+"|"+l[column["window_start"]]] = n
	}
	if len(c) < 3000 {
		t.Fatalf("only %d rows are expected", len(c))
	}
	return c
}
