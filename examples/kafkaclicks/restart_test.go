package main

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"syscall"
	"testing"

	"github.com/weirstream/weir/connector/kafka/kafkatest"
)

// often makes many epochs in a life.
var often = []string{"--checkpoint-records", "500"}

// length is how many clicks a long input has.
const length = 20_000

// TestStopAndGoOn stops the job politely in the middle, and starts it again with
// another parallelism each time. No window is closed by a stop: with no lateness at
// all, clicks after it are still in time.
func TestStopAndGoOn(t *testing.T) {
	at := newPlace(t, 4)
	at.produce(at.made(0, length)...)
	for life := range 3 {
		p := launch(t, at.args(append(often, "--parallelism", strconv.Itoa(life+1), "--lateness", "0")...)...)
		if life > 0 {
			p.Until("restored checkpoint")
		}
		p.Entries(at.state, 5*(life+1))
		p.Stop("stopping: taking a last checkpoint")
		at.settled()
		at.committed(true)
	}
	launch(t, at.args("--lateness", "0", "--stop-at-end")...).Ends(0, "restored checkpoint", "late 0")
	at.want(madeCounts(length))
	at.wantLag(0)
}

// TestStopAtEnd: each run counts what is there and closes no window, so that the
// next one goes on in the same minute, with no lateness allowed. A run that finds
// nothing new writes nothing.
func TestStopAtEnd(t *testing.T) {
	at := newPlace(t, 4)
	args := at.args("--stop-at-end", "--lateness", "0", "--out-of-order", "10s", "--checkpoint-interval", "50ms")
	n := 0
	for run, more := range []int{0, 1_000, 1, 0, 2_345, 0, 777} { // the first one finds an empty topic
		at.produce(at.made(n, n+more)...)
		n += more
		launch(t, args...).Ends(0, "ended: ", "late 0", "a later run goes on there")
		at.want(madeCounts(n))
		at.wantLag(0)
		if t.Failed() {
			t.Fatalf("in run %d", run)
		}
	}
	before := at.messages()
	launch(t, args...).Ends(0, "ended: ")
	if after := at.messages(); after != before {
		t.Fatalf("a run without input wrote %d messages", after-before)
	}
}

// TestBounded: the input's end is its end as of the first start, also for the runs
// that follow; what comes later is for another job.
func TestBounded(t *testing.T) {
	at := newPlace(t, 4)
	at.produce(at.made(0, 3_000)...)
	p := launch(t, at.args("--bounded", "--checkpoint-records", "100")...)
	p.Entries(at.state, 4)
	p.Kill()
	at.produce(at.made(3_000, 3_500)...)
	launch(t, at.args("--bounded")...).Ends(0, "restored checkpoint", "finished: 3,000 records")
	at.want(madeCounts(3_000))
	before := at.messages()
	launch(t, at.args("--bounded")...).Ends(0, "nothing to do")
	if after := at.messages(); after != before {
		t.Fatalf("a run with nothing to do wrote %d messages", after-before)
	}
}

// TestKilledAndStartedAgain kills the process again and again, also while it is
// about to begin or to commit, with another parallelism each time.
func TestKilledAndStartedAgain(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	want := expected(t, "clicks_ad_minute_dedup")
	rnd := rand.New(rand.NewPCG(seed, 1))
	at := newPlace(t, 4)
	at.produce(at.file()...)
	args := func(more ...string) []string {
		return at.args(append(more, "--dedup", "1h", "--stop-at-end", "--checkpoint-records", "100",
			"--parallelism", strconv.Itoa(1+rnd.IntN(5)))...)
	}
	for slot := 2; slot < 30; slot += 2 + rnd.IntN(5) {
		p := launch(t, args()...)
		p.Entries(at.state, slot)
		p.Try(syscall.SIGKILL)
		p.End()
		at.committed(true)
	}
	launch(t, args()...).Ends(0)
	at.want(want)
	at.wantLag(0)
	launch(t, args()...).Ends(0, "ended: ")
	at.want(want)
}

// TestKilledAtLeastOnce: counts may come again after a kill, and the last one of each
// key is right.
func TestKilledAtLeastOnce(t *testing.T) {
	at := newPlace(t, 4)
	at.produce(at.file()...)
	args := at.args("--dedup", "1h", "--stop-at-end", "--checkpoint-records", "100", "--guarantee", "at-least-once")
	for slot := 4; slot < 20; slot += 5 {
		p := launch(t, args...)
		p.Entries(at.state, slot)
		p.Try(syscall.SIGKILL)
		p.End()
	}
	launch(t, args...).Ends(0)
	at.compare(expected(t, "clicks_ad_minute_dedup"), false)
	at.wantLag(0)
}

// TestSecondProcessIsRefused, until it takes over; the first one then ends, with a
// code of its own, and has changed nothing.
func TestSecondProcessIsRefused(t *testing.T) {
	at := newPlace(t, 2)
	first := launch(t, at.args("--checkpoint-interval", "20ms")...)
	first.Until("started for the first time")
	at.produce(at.made(0, 1_000)...)
	at.shows(first, madeCounts(1_000))
	launch(t, at.args()...).Ends(14, "is in use", "--takeover", at.state, fmt.Sprintf("process %d", first.Pid()))
	second := launch(t, at.args("--takeover", "--checkpoint-interval", "20ms")...)
	second.Until("restored checkpoint")
	at.produce(at.made(1_000, 2_000)...)
	first.Ends(13, "fenced by a newer start")
	at.shows(second, madeCounts(2_000))
	second.Stop()
	at.want(madeCounts(2_000))
}

// TestEpochsOfEverySize: with one record in each, and with none at all.
func TestEpochsOfEverySize(t *testing.T) {
	at := newPlace(t, 1)
	at.produce(at.made(0, 50)...)
	launch(t, at.args("--checkpoint-records", "1", "--stop-at-end")...).Ends(0, "ended: 50 records")
	at.want(madeCounts(50))
	if n := at.messages(); n != 50 {
		t.Fatalf("50 epochs of a record each made %d messages", n)
	}
	p := launch(t, at.args("--checkpoint-interval", "5ms")...)
	p.Until("restored checkpoint")
	at.produce(at.made(50, 51)...)
	at.shows(p, madeCounts(51))
	// Lives without a record, and another one after them.
	p.Kill()
	for range 3 {
		p = launch(t, at.args("--checkpoint-interval", "5ms")...)
		p.Until("restored checkpoint")
		p.Stop()
	}
	p = launch(t, at.args("--checkpoint-interval", "5ms")...)
	p.Until("restored checkpoint")
	at.produce(at.made(51, 52)...)
	at.shows(p, madeCounts(52))
	p.Stop()
	at.want(madeCounts(52))
	at.wantLag(0)
}

// TestEpochLongerThanItsTransaction: the interval is far longer than a transaction
// may be open. A dead letter opens one at once; what was read until then shows long
// before the interval has passed, and nothing twice.
func TestEpochLongerThanItsTransaction(t *testing.T) {
	at := newPlace(t, 2)
	letters := kafkatest.Topic(t, at.brokers, 1)
	p := launch(t, at.args("--checkpoint-interval", "1h", "--transaction-timeout", "2s", "--dead-letters", letters)...)
	p.Until("started for the first time")
	for n := 0; n < 900; n += 300 {
		at.produce(at.made(n, n+300)...)
		at.produce(at.message("bad", "{oops"))
		at.shows(p, madeCounts(n+300))
	}
	at.produce(at.made(900, 1_000)...)
	p.Stop()
	launch(t, at.args("--stop-at-end", "--dead-letters", letters)...).Ends(0, "restored checkpoint")
	at.want(madeCounts(1_000))
	at.wantLag(0)
	if n := len(kafkatest.ReadCommitted(t, at.brokers, letters)); n != 3 {
		t.Errorf("%d dead letters, want 3", n)
	}
}
