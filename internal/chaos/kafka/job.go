package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/weirstream/weir/internal/chaos/trial"
)

// recipe is a kind of job: the binary, where its clicks come from, and where its
// counts go.
type recipe struct {
	name      string
	binary    string // kafkaclicks or mixed
	file      bool   // the clicks come from a file
	topic     bool   // the counts go to a topic
	db, files bool   // and to a database, and to files
	atLeast   bool   // without transactions
}

func (r recipe) bin(h *harness) string { return filepath.Join(h.dir, r.binary) }

var kafkaToKafka = recipe{name: "Kafka to Kafka", binary: "kafkaclicks", topic: true}

// pace is how fast clicks come.
type pace struct {
	each int   // clicks a pulse
	gap  int64 // milliseconds of the clicks' time from one to the next
}

var (
	// brisk lets an hour of clicks go by in twelve seconds.
	brisk = pace{each: 30, gap: 100}
	// calm lets less go by than what is timely while brokers are away.
	calm = pace{each: 30, gap: 20}
	// idle leaves the machine to the job's recovery.
	idle = pace{each: 2, gap: 100}
)

// job is one job from nothing to the end of its input.
type job struct {
	*harness
	lab        *lab
	recipe     recipe
	rng        *rand.Rand
	dir, state string
	prefix     string // before the names of its topics and of what it makes itself
	group      string
	rules      trial.Rules
	partitions int32
	interval   time.Duration // between checkpoints; 0: drawn for each life
	timeout    time.Duration // of transactions
	direct     bool          // its processes have no proxy
	feeder     *feeder
	source     *generator
	sent       int64              // clicks, once the feeder has ended
	input      map[string][]click // of a file
	events     events
	life       int
	sinks      []sink
}

// newJob makes a job's topics and its folder, and starts to feed it.
func (h *harness) newJob(ctx context.Context, l *lab, r recipe, p pace) (*job, error) {
	h.jobs++
	j := &job{harness: h, lab: l, recipe: r, rng: newRand(h.seed, h.jobs), timeout: 10 * time.Second}
	j.prefix = fmt.Sprintf("c%d-%d-", h.seed, h.jobs)
	j.group = j.prefix + "mixed"
	if r.binary == kafkaToKafka.binary {
		j.group = j.topic("out") + "-kafka-clicks"
	}
	j.dir = filepath.Join(h.dir, fmt.Sprintf("job-%d", h.jobs))
	j.state = j.path("state")
	j.partitions = 1 + j.rng.Int32N(4)
	j.rules = trial.Rules{Dedup: []int64{0, 5 * minute, 60 * minute}[j.rng.IntN(3)], Disorder: []int64{1_000, 30_000}[j.rng.IntN(2)], Lateness: 30 * minute}
	j.source = newGenerator(j.rng, j.rules, p.gap)
	if err := os.Mkdir(j.dir, 0o700); err != nil {
		return nil, err
	}
	j.sinks = j.newSinks()
	in, err := j.lab.create(ctx, j.topic("in"), j.partitions)
	if err != nil {
		return nil, err
	}
	out, err := j.lab.create(ctx, j.topic("out"), 1+j.rng.Int32N(4))
	if err != nil {
		return nil, err
	}
	j.events = events{
		inputIDs: map[[16]byte]bool{in: true}, outputIDs: map[[16]byte]bool{out: true},
		inputNames: map[string]bool{j.topic("in"): true}, outputNames: map[string]bool{j.topic("out"): true},
	}
	if r.file {
		return j, j.writeFile(fileClicks)
	}
	j.feeder, err = feed(ctx, l.Brokers(), j.topic("in"), j.partitions, j.source, p.each)
	return j, err
}

func (j *job) path(name string) string { return filepath.Join(j.dir, name) }

// remove removes a job that is over, at the brokers too.
func (j *job) remove(ctx context.Context) error {
	topics := []string{j.topic("in"), j.topic("out")}
	if j.recipe.topic && !j.recipe.atLeast {
		topics = append(topics, j.controlTopic())
	}
	if _, err := j.lab.adm.DeleteTopics(ctx, topics...); err != nil {
		return fmt.Errorf("delete the job's topics: %w", err)
	}
	if j.keep {
		return nil
	}
	return os.RemoveAll(j.dir)
}

// topic is the full name of one of the job's topics: in, out.
func (j *job) topic(name string) string { return j.prefix + name }

// controlTopic is what the job calls its control topic.
func (j *job) controlTopic() string { return j.group + ".ckpt" }

// args draws what may change from life to life.
func (j *job) args() []string {
	rng := j.rng
	ms := func(n int64) string { return (time.Duration(n) * time.Millisecond).String() }
	interval := j.interval
	if interval == 0 {
		interval = time.Duration(20+rng.IntN(180)) * time.Millisecond
	}
	args := []string{"run", "--state", j.state, "--progress", "0", "--retain", "1000000",
		"--out-of-order", ms(j.rules.Disorder), "--lateness", ms(j.rules.Lateness), "--checkpoint-interval", interval.String(),
		"--parallelism", fmt.Sprint(1 + rng.IntN(3)), "--batch-size", fmt.Sprint([]int{1, 7, 64, 256, 1024}[rng.IntN(5)])}
	if j.rules.Dedup > 0 {
		args = append(args, "--dedup", ms(j.rules.Dedup))
	}
	return append(args, j.recipe.args(j)...)
}

func (r recipe) args(j *job) (args []string) {
	if r.file {
		args = append(args, "--input-file", j.path("clicks.jsonl"))
	} else {
		args = append(args, "--input", j.topic("in"))
	}
	if r.topic {
		args = append(args, "--output", j.topic("out"), "--transaction-timeout", j.timeout.String())
	}
	if r.binary != kafkaToKafka.binary { // which makes its names from its output's
		args = append(args, "--prefix", j.prefix)
	}
	if r.db {
		args = append(args, "--db", j.path("counts.db"))
	}
	if r.files {
		args = append(args, "--files", j.path("files"))
	}
	if r.atLeast {
		args = append(args, "--guarantee", "at-least-once")
	}
	return args
}

// finish ends the feeding and lets the job read to its end.
func (j *job) finish(ctx context.Context) error {
	if j.feeder != nil {
		if err := j.feeder.end(); err != nil {
			return fmt.Errorf("feed the job: %w", err)
		}
		j.sent, j.feeder = j.feeder.sent, nil
	}
	var more []string
	if !j.recipe.file {
		more = []string{"--stop-at-end"}
	}
	l, err := j.start(ctx, nil, more...)
	if err != nil {
		return err
	}
	code, err := l.end(ctx)
	if e := l.close(); err == nil {
		err = e
	}
	if err == nil && code != 0 {
		err = trial.Failed("the last life ended with exit code %d: see %s", code, l.said.Name())
	}
	return err
}

// check holds all that the job has left to the oracle.
func (j *job) check(ctx context.Context) (v verdict, err error) {
	in := j.input
	if in == nil {
		if in, err = j.readInput(ctx); err != nil {
			return v, err
		}
	}
	want := newTally(j.rules)
	if err := want.all(in); err != nil {
		return v, err
	}
	if j.recipe.topic {
		if v, err = j.checkTopic(ctx, in, want.table); err != nil {
			return v, err
		}
	}
	for _, s := range j.sinks {
		if err := s.check(&v, want.table, want.table); err != nil {
			return v, err
		}
	}
	if !j.recipe.file {
		err = j.lag(ctx, in)
	}
	return v, err
}

func (j *job) readInput(ctx context.Context) (map[string][]click, error) {
	recs, err := kcat(ctx, j.lab.Brokers(), j.topic("in"))
	if err != nil {
		return nil, err
	}
	if int64(len(recs)) != j.sent {
		return nil, trial.Failed("the input has %d records, of %d that were sent", len(recs), j.sent)
	}
	return clicksOf(j.topic("in"), recs)
}

// checkTopic reads the output back and holds it to the oracle, as a whole and
// epoch by epoch.
func (j *job) checkTopic(ctx context.Context, in map[string][]click, want table) (v verdict, err error) {
	topics := []string{j.topic("out")}
	if !j.recipe.atLeast {
		topics = append(topics, j.controlTopic())
	}
	if err := j.settled(ctx, topics...); err != nil {
		return v, err
	}
	recs, err := kcat(ctx, j.lab.Brokers(), j.topic("out"))
	if err != nil {
		return v, err
	}
	out, err := updates(recs)
	if err != nil {
		return v, err
	}
	v = sequence(out, want)
	if j.recipe.atLeast {
		return v, nil
	}
	control, err := kcat(ctx, j.lab.Brokers(), j.controlTopic())
	if err != nil {
		return v, err
	}
	of, err := transactions(ctx, j.lab.cl, j.topic("out"))
	if err != nil {
		return v, err
	}
	named, err := transactions(ctx, j.lab.cl, j.controlTopic())
	if err != nil {
		return v, err
	}
	e, err := j.epochs(in, out, control, of, named)
	if v.wrong() == 0 { // otherwise the same would be counted twice
		e.records = v.records
		return e, err
	}
	v.epochs = e.epochs
	return v, err
}

func newRand(seed uint64, n int) *rand.Rand { return rand.New(rand.NewPCG(seed, uint64(n))) }
