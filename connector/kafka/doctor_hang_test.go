package kafka

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/codec"
	"github.com/weirstream/weir/connector/kafka/kafkatest"
	"github.com/weirstream/weir/internal/kafkalab"
)

// Markers get lost between a coordinator and the leaders of partitions, as by a
// broker that is killed in the wrong moment. The job refuses to go on; the doctor finds
// out how the transaction ended, and writes what is missing; then the job goes on, and
// each message is there once.
func TestDoctorEndsHangingTransactions(t *testing.T) {
	kafkatest.RealOnly(t, "kfake has one process for coordinators and leaders; this test starts a broker of its own")
	kafkalab.Need(t)
	for name, c := range map[string]struct {
		commit bool // the transaction that is left hanging was committed
		init   bool // its producer is initialized again before the doctor comes, so that the coordinator's state says nothing any more
		crash  bool // the broker is killed afterwards
	}{
		"committed": {commit: true, crash: true}, "aborted": {crash: true},
		"committed and initialized again": {commit: true, init: true}, "aborted and initialized again": {init: true},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHangLab(t, c.commit, true)
			h.steal()
			if c.crash {
				h.crash()
			}
			if open := h.open(); len(open) != 1 || len(open[0].parts) != outParts && !c.commit || len(open[0].parts) != outParts+1 && c.commit {
				t.Fatalf("other markers are lost than those of one transaction in %d partitions: %v", outParts, open)
			}
			if c.init {
				h.initialize()
			}
			h.refused()
			h.mend()
			h.goesOn()
		})
	}
}

// A broker that is killed in the moment after it has answered EndTxn loses the
// markers, or it doesn't: that is a matter of luck. Either way the job comes to the
// right end.
func TestDoctorAfterAKilledBroker(t *testing.T) {
	kafkatest.RealOnly(t, "kfake loses no markers; this test kills a broker of its own")
	kafkalab.Need(t)
	for name, commit := range map[string]bool{"committed": true, "aborted": false} {
		t.Run(name, func(t *testing.T) {
			h := newHangLab(t, commit, false)
			h.killed()
			if open := h.open(); len(open) > 0 {
				t.Logf("lost are the markers of %s", open[0].heldAt())
				h.refused()
				h.mend()
			} else {
				t.Log("no marker was lost")
			}
			h.goesOn()
		})
	}
}

// hangLab is a job on a broker of its own, and the state that it is brought into.
type hangLab struct {
	*testing.T
	hangJob
	lab    *kafkalab.Cluster
	thief  *markerThief
	commit bool
	sent   []string
}

// hangJob is what a worker, in a process that can be killed, is told.
type hangJob struct {
	Brokers []string
	Job     string
	State   string
}

const (
	hangEnv = "WEIR_TEST_HANG_JOB"
	poison  = "poison"
	// outParts are the partitions of the output: each message of a batch goes to
	// another one.
	outParts = 8
)

func (j hangJob) in() string  { return j.Job + ".in" }
func (j hangJob) out() string { return j.Job + ".out" }

// declare is the job; at poison it fails, if it may.
func (j hangJob) declare(fails bool, opts ...SourceOption) *weir.Job {
	c := NewCluster(j.Brokers)
	job := weir.NewJob(j.Job)
	job.From("in", Source(c, Named(j.in()), codec.String(), opts...)).
		TryMap(func(s string) (string, error) {
			if fails && s == poison {
				return s, errors.New("the job's code is broken")
			}
			return s, nil
		}).
		Filter(func(s string) bool { return s != poison }).
		To("out", Sink(c, j.out(), func(s *string, m *Message) error {
			n, err := strconv.Atoi(*s)
			m.Value, m.Partition = append(m.Value, *s...), int32(n%outParts)
			return err
		}, Linger(0)))
	return job
}

// beHangWorker runs the job in a process that was started for that. Each line of the
// standard input asks for a checkpoint.
func beHangWorker(spec string) {
	var j hangJob
	if err := json.Unmarshal([]byte(spec), &j); err != nil {
		panic(err)
	}
	ctx := context.Background()
	running := j.declare(true).Start(ctx, weir.StateDir(j.State), weir.Interval(0), weir.Restarts(0))
	go func() { // until the process ends
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			_, err := running.Checkpoint(ctx)
			fmt.Println("checkpoint:", err)
		}
	}()
	fmt.Println("ended:", running.Wait())
	os.Exit(0)
}

func newHangLab(t *testing.T, commit, steals bool) *hangLab {
	t.Helper()
	o := kafkalab.Options{Dir: filepath.Join(t.TempDir(), "kafka"), Proxy: true}
	h := &hangLab{T: t, commit: commit}
	if steals {
		o.Port = freePorts(t, 4)
		h.thief = newMarkerThief(t, net.JoinHostPort("127.0.0.1", strconv.Itoa(o.Port+2)))
		o.Settings = []string{
			"inter.broker.listener.name=PROXIED",
			fmt.Sprintf("advertised.listeners=PLAINTEXT://127.0.0.1:%d,PROXIED://%s", o.Port, h.thief.addr()),
		}
	}
	lab, err := kafkalab.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := lab.Close(); err != nil {
			t.Errorf("close the broker: %v", err)
		}
	})
	h.lab, h.hangJob = lab, hangJob{lab.Brokers(), kafkatest.Name(t), t.TempDir()}
	kafkatest.CreateTopic(t, lab.Brokers(), h.in(), 1)
	kafkatest.CreateTopic(t, lab.Brokers(), h.out(), outParts)
	return h
}

// freePorts returns the first of n ports in a row that are free now.
func freePorts(t *testing.T, n int) int {
	t.Helper()
	for range 100 {
		port, free := 20000+rand.IntN(10000), true
		for i := 0; i < n && free; i++ {
			l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port+i)))
			if free = err == nil; free {
				l.Close()
			}
		}
		if free {
			return port
		}
	}
	t.Fatalf("there are no %d free ports in a row", n)
	return 0
}

func (h *hangLab) send(values ...string) {
	h.Helper()
	var records []*kgo.Record
	for _, v := range values {
		records = append(records, &kgo.Record{Topic: h.in(), Value: []byte(v)})
		if v != poison {
			h.sent = append(h.sent, v)
		}
	}
	kafkatest.Produce(h.T, h.lab.Brokers(), records...)
}

func upFrom(from, n int) (out []string) {
	for i := range n {
		out = append(out, strconv.Itoa(from+i))
	}
	return out
}

// begin lets a worker commit 30 messages and write 30 more. end makes it end their
// transaction, as commit or by failing; kill kills it.
func (h *hangLab) begin(ctx context.Context, brokers []string) (w *hangWorker, end func()) {
	h.Helper()
	w = h.worker(brokers)
	h.send(upFrom(0, 30)...)
	h.written(ctx, 30)
	w.ask()
	w.says(ctx, "checkpoint: <nil>", 1)
	kafkatest.Settle(h.T, h.lab.Brokers(), h.out())
	h.send(upFrom(30, 30)...)
	h.written(ctx, 60)
	return w, func() {
		if h.commit {
			w.ask()
		} else {
			h.send(poison)
		}
	}
}

// steal lets a worker end a transaction whose markers are stolen.
func (h *hangLab) steal() {
	h.Helper()
	ctx, cancel := context.WithTimeout(h.Context(), 2*time.Minute)
	defer cancel()
	w, end := h.begin(ctx, h.lab.Brokers())
	defer w.kill()
	h.thief.steals.Store(true)
	end()
	for h.thief.stolen.Load() < outParts {
		if ctx.Err() != nil {
			h.Fatal("the coordinator writes no markers")
		}
		runtime.Gosched()
	}
	w.kill()
	for len(h.open()) == 0 { // until the coordinator has noted that all is done
		if ctx.Err() != nil {
			h.Fatal("the coordinator doesn't complete the transaction")
		}
	}
	h.thief.steals.Store(false)
}

// crash kills the broker and starts it again.
func (h *hangLab) crash() {
	h.Helper()
	if err := h.lab.KillNode(h.Context(), 1); err != nil {
		h.Fatal(err)
	}
	if err := h.lab.StartNode(h.Context(), 1); err != nil {
		h.Fatal(err)
	}
}

// killed kills worker and broker as soon as EndTxn is answered, and starts the broker
// again.
func (h *hangLab) killed() {
	h.Helper()
	ctx, cancel := context.WithTimeout(h.Context(), 2*time.Minute)
	defer cancel()
	w, end := h.begin(ctx, h.lab.Proxy().Addrs())
	defer w.kill()
	answered := h.lab.Proxy().Cut(kafkalab.After, kmsg.EndTxn, func(r kafkalab.Request) bool {
		req, err := r.Decode()
		return err == nil && req.(*kmsg.EndTxnRequest).Commit == h.commit
	})
	end()
	select {
	case <-answered.Done():
	case <-ctx.Done():
		h.Fatal("no transaction has ended")
	}
	if err := h.lab.KillNode(ctx, 1); err != nil {
		h.Fatal(err)
	}
	w.kill()
	if err := h.lab.StartNode(ctx, 1); err != nil {
		h.Fatal(err)
	}
}

// hangWorker is a process that runs the job.
type hangWorker struct {
	t    *testing.T
	in   io.Writer
	kill func()

	mu   sync.Mutex
	said strings.Builder
}

func (h *hangLab) worker(brokers []string) *hangWorker {
	h.Helper()
	job := h.hangJob
	job.Brokers = brokers
	spec, err := json.Marshal(job)
	if err != nil {
		h.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), hangEnv+"="+string(spec))
	w := &hangWorker{t: h.T}
	cmd.Stdout, cmd.Stderr = w, w
	if w.in, err = cmd.StdinPipe(); err == nil {
		err = cmd.Start()
	}
	if err != nil {
		h.Fatal(err)
	}
	w.kill = sync.OnceFunc(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()         // it was killed
	})
	return w
}

// Write takes what the worker says.
func (w *hangWorker) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.said.Write(b)
}

// ask asks for a checkpoint.
func (w *hangWorker) ask() {
	w.t.Helper()
	if _, err := io.WriteString(w.in, "\n"); err != nil {
		w.t.Fatalf("ask for a checkpoint: %v", err)
	}
}

// says waits until the worker has said something so often.
func (w *hangWorker) says(ctx context.Context, what string, n int) {
	w.t.Helper()
	for {
		w.mu.Lock()
		said := w.said.String()
		w.mu.Unlock()
		if strings.Count(said, what) >= n {
			return
		}
		if ctx.Err() != nil {
			w.t.Fatalf("the worker doesn't say %q, but:\n%s", what, said)
		}
		runtime.Gosched()
	}
}

// written waits until so many messages are in the output, committed or not.
func (h *hangLab) written(ctx context.Context, n int) {
	h.Helper()
	for len(kafkatest.ReadUncommitted(h.T, h.lab.Brokers(), h.out())) < n {
		if ctx.Err() != nil {
			h.Fatalf("the job doesn't write %d messages: %v", n, context.Cause(ctx))
		}
	}
}

// open lists what hangs, once the coordinator has done what it does when it starts.
func (h *hangLab) open() []*openTxn {
	h.Helper()
	adm := kadm.NewClient(kafkatest.Client(h.T, h.lab.Brokers()))
	for {
		topics, err := adm.ListTopics(h.Context(), h.out(), h.Job+controlSuffix)
		if err != nil {
			h.Fatal(err)
		}
		open, err := openIn(h.Context(), adm, topics.TopicsSet(), h.Job+"-0-a", h.Job+"-0-b")
		if err == nil && !slices.ContainsFunc(open, func(o *openTxn) bool { return o.standing == ending }) {
			return slices.DeleteFunc(open, func(o *openTxn) bool { return o.standing != hanging })
		}
		if !temporary(err) && err != nil {
			h.Fatal(err)
		}
	}
}

// initialize does what a start does, which takes the coordinator's last word away.
func (h *hangLab) initialize() {
	h.Helper()
	for _, id := range NewCluster(nil).txids(h.Job) {
		cl := kafkatest.Client(h.T, h.lab.Brokers(), kgo.TransactionalID(id))
		if _, _, err := cl.ProducerID(h.Context()); err != nil {
			h.Fatal(err)
		}
	}
}

func (h *hangLab) run() error {
	return h.declare(false, StopAtEnd()).Run(h.Context(), weir.StateDir(h.State), weir.Takeover(), weir.Interval(50*time.Millisecond))
}

// refused wants the job not to go on.
func (h *hangLab) refused() {
	h.Helper()
	if err := h.run(); !errors.Is(err, weir.ErrRefused) || !strings.Contains(err.Error(), "hangs") {
		h.Fatalf("the job goes on beside a hanging transaction: %v", err)
	}
}

// mend repairs what the doctor finds, by the evidence that it has.
func (h *hangLab) mend() {
	h.Helper()
	as := map[bool]string{true: asCommit, false: asAbort}[h.commit]
	f := h.examine().want(h.T, weir.LevelProblem, "hanging transaction")
	h.Logf("%s\n%s", f.Text, f.Fix)
	if len(f.Repairs) != 1 || f.Repairs[0].As != as || len(f.Repairs[0].Evidence) == 0 {
		h.Fatalf("it was ended as %s, and offered is %+v", as, f.Repairs)
	}
	for _, e := range f.Repairs[0].Evidence {
		h.Logf("because %s", e)
	}
	if err := f.Repairs[0].Do(h.Context()); err != nil {
		h.Fatalf("the repair: %v", err)
	}
	if open := h.open(); len(open) > 0 {
		h.Fatalf("still open: %s", open[0].heldAt())
	}
	if got, want := len(h.visible()), map[bool]int{true: 60, false: 30}[h.commit]; got != want {
		h.Errorf("behind the repair %d messages are visible, want %d: an epoch is there whole or not at all", got, want)
	}
	if err := f.Repairs[0].Do(h.Context()); err == nil {
		h.Error("a repair that was done could be done again")
	}
}

// goesOn runs the job to the end of its input, and wants each message once.
func (h *hangLab) goesOn() {
	h.Helper()
	h.send(upFrom(60, 5)...)
	if err := h.run(); err != nil {
		h.Fatalf("behind the repair: %v", err)
	}
	got := h.visible()
	slices.Sort(got)
	slices.Sort(h.sent)
	if !slices.Equal(got, h.sent) {
		h.Errorf("%d messages were written, want %d, each once:\n%v", len(got), len(h.sent), got)
	}
	h.examine().healthy(h.T)
}

func (h *hangLab) visible() (out []string) {
	for _, r := range kafkatest.ReadCommitted(h.T, h.lab.Brokers(), h.out()) {
		out = append(out, string(r.Value))
	}
	return out
}

func (h *hangLab) examine() diagnosis {
	h.Helper()
	found, err := h.declare(false).Doctor(h.Context(), weir.StateDir(h.State))
	if err != nil {
		h.Fatal(err)
	}
	return found
}
