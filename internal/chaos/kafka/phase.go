package main

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// phase is what a process was at when something was done to it: by what its
// proxy has carried, and by what lay in the state directory.
type phase struct{ name, says string }

var (
	starting  = phase{"starting", "nothing was asked of the broker yet"}
	reaching  = phase{"reaching", "no producer was fenced yet"}
	fencing   = phase{"fencing", "a producer's fencing was asked for, none had an answer"}
	fencedOne = phase{"fenced one", "one of the two producers was fenced"}
	claiming  = phase{"claiming", "both were, and a record that says so was being committed"}
	restoring = phase{"restoring", "that was done, and the input wasn't asked for"}
	waiting   = phase{"reading", "no transaction was open"}
	open      = phase{"open", "an epoch's transaction was open"}
	barrier   = phase{"barrier", "the same, and its barrier was out: segments without an entry"}
	entered   = phase{"entered", "its checkpoint was in the log, and nothing of it at the broker"}
	naming    = phase{"naming", "its record for the control topic was on its way"}
	named     = phase{"named", "that was answered"}
	offsets   = phase{"offsets", "the input's offsets were on their way"}
	added     = phase{"added", "that was answered"}
	ending    = phase{"ending", "EndTxn was on its way"}
	ended     = phase{"ended", "EndTxn was answered, and that was the last that was said"}

	phases = []phase{starting, reaching, fencing, fencedOne, claiming, restoring, waiting, open, barrier, entered, naming, named, offsets, added, ending, ended}
)

// What a trace looks at, and a trap is set for.
const (
	keyProduce      = int16(0)
	keyFetch        = int16(1)
	keyInitProducer = int16(22)
	keyEndTxn       = int16(26)
	keyTxnOffset    = int16(28)
	controlTopic    = "control"
	outputTopic     = "output"
)

// event is a request that a worker has sent, or with answer what it gets.
type event struct {
	key    int16
	txid   string // "" unless it belongs to a transaction
	topic  string // controlTopic or outputTopic of a Produce
	answer bool
	ok     bool // of an answer: it has no error
	commit bool // of EndTxn
	input  bool // of Fetch: it asks for the input
}

// is reports whether an event is what a moment waits for: "Produce", "control",
// "TxnOffsetCommit", "EndTxn" and "InitProducerId", and of the last the producer.
func (e event) is(what string) bool {
	switch what {
	case "Produce":
		return e.key == keyProduce && e.topic == outputTopic
	case "control":
		return e.key == keyProduce && e.topic == controlTopic
	case "TxnOffsetCommit":
		return e.key == keyTxnOffset
	case "EndTxn":
		return e.key == keyEndTxn && e.commit
	case "InitProducerId":
		return e.key == keyInitProducer && e.txid != ""
	case "InitProducerId a", "InitProducerId b":
		return e.key == keyInitProducer && strings.HasSuffix(e.txid, "-"+what[len(what)-1:])
	case "Fetch":
		return e.key == keyFetch && e.input
	}
	return false
}

// events makes events of what a proxy carries. known are the topics that were
// there before the job, by id and by name: a Produce to another one goes to the
// control topic, which the job makes itself.
type events struct {
	inputIDs, outputIDs     map[[16]byte]bool
	inputNames, outputNames map[string]bool
}

func (v events) of(req kmsg.Request, resp kmsg.Response) event {
	e := event{key: req.Key(), answer: resp != nil}
	switch r := req.(type) {
	case *kmsg.ProduceRequest:
		if r.TransactionID != nil {
			e.txid = *r.TransactionID
		}
		for _, t := range r.Topics {
			if v.outputIDs[t.TopicID] || v.outputNames[t.Topic] {
				if e.topic == "" {
					e.topic = outputTopic
				}
			} else {
				e.topic = controlTopic
			}
		}
	case *kmsg.FetchRequest:
		for _, t := range r.Topics {
			e.input = e.input || v.inputIDs[t.TopicID] || v.inputNames[t.Topic]
		}
	case *kmsg.InitProducerIDRequest:
		if r.TransactionalID != nil {
			e.txid = *r.TransactionalID
		}
	case *kmsg.TxnOffsetCommitRequest:
		e.txid = r.TransactionalID
	case *kmsg.EndTxnRequest:
		e.txid, e.commit = r.TransactionalID, r.Commit
	}
	e.ok = resp != nil && ok(resp)
	return e
}

// ok reports whether an answer of those that matter has no error in it.
func ok(resp kmsg.Response) bool {
	var codes []int16
	switch r := resp.(type) {
	case *kmsg.ProduceResponse:
		for _, t := range r.Topics {
			for _, p := range t.Partitions {
				codes = append(codes, p.ErrorCode)
			}
		}
	case *kmsg.TxnOffsetCommitResponse:
		for _, t := range r.Topics {
			for _, p := range t.Partitions {
				codes = append(codes, p.ErrorCode)
			}
		}
	case *kmsg.EndTxnResponse:
		codes = append(codes, r.ErrorCode)
	case *kmsg.InitProducerIDResponse:
		codes = append(codes, r.ErrorCode)
	}
	return !slices.ContainsFunc(codes, func(c int16) bool { return kerr.ErrorForCode(c) != nil })
}

// trace is how far a process has come, by what its proxy has carried.
type trace struct {
	decides bool // the process has producers to be fenced

	mu      sync.Mutex
	asked   map[string]bool  // transactional ids whose fencing was asked for
	fenced  map[string]bool  // and answered
	at      map[string]phase // how far each id's transaction is
	anybody bool
	read    bool  // the input was asked for
	names   int   // records sent to the control topic since the fencing, the first of them a claim
	commits int   // EndTxn that were answered, without an error
	last    event // of those that matter
	frozen  bool  // the process is dead, and what it has sent is still on its way
}

func newTrace(decides bool) *trace {
	return &trace{decides: decides, asked: map[string]bool{}, fenced: map[string]bool{}, at: map[string]phase{}}
}

// note takes an event in.
func (t *trace) note(e event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.frozen {
		return
	}
	t.anybody = true
	if e.key == keyFetch && e.input && (len(t.fenced) > 1 || !t.decides) {
		t.read = true
	}
	if e.txid == "" {
		return
	}
	t.last = e
	switch {
	case e.key == keyInitProducer && !e.answer:
		// Fencing starts a life, or one more after an error.
		if t.read {
			t.asked, t.fenced, t.at, t.read, t.names = map[string]bool{}, map[string]bool{}, map[string]phase{}, false, 0
		}
		t.asked[e.txid] = true
	case e.key == keyInitProducer:
		if e.ok {
			t.fenced[e.txid] = true
		}
	case e.is("control") && !e.answer:
		t.names++
		t.at[e.txid] = naming
	case e.is("control"):
		t.at[e.txid] = named
	case e.is("Produce"):
		if was := t.at[e.txid]; was == (phase{}) || was == ended {
			t.at[e.txid] = open
		}
	case e.key == keyTxnOffset && !e.answer:
		t.at[e.txid] = offsets
	case e.key == keyTxnOffset:
		t.at[e.txid] = added
	case e.key == keyEndTxn && !e.answer:
		t.at[e.txid] = ending
	case e.key == keyEndTxn && e.ok:
		t.at[e.txid] = ended
		if e.commit && t.names > 1 { // the first is the claim
			t.commits++
		}
	}
}

// now is the trace as it is, for good.
func (t *trace) now() *trace {
	t.mu.Lock()
	defer t.mu.Unlock()
	return &trace{decides: t.decides, asked: maps.Clone(t.asked), fenced: maps.Clone(t.fenced), at: maps.Clone(t.at),
		anybody: t.anybody, read: t.read, names: t.names, commits: t.commits, last: t.last, frozen: true}
}

// freeze keeps the trace as it is.
func (t *trace) freeze() {
	t.mu.Lock()
	t.frozen = true
	t.mu.Unlock()
}

// committed is how many transactions of the process have been committed.
func (t *trace) committed() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.commits
}

// phase says what the process is at, with its state directory as it is now.
func (t *trace) phase(s store) phase {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case !t.anybody:
		return starting
	case len(t.asked) == 0 && t.decides, !t.decides && !t.read:
		return reaching
	case len(t.fenced) == 0 && t.decides:
		return fencing
	case len(t.fenced) == 1 && t.decides:
		return fencedOne
	case t.decides && t.names == 0:
		return claiming
	case !t.read && len(t.at) == 0:
		return restoring
	}
	for _, p := range []phase{ending, added, offsets, named, naming} {
		for _, at := range t.at {
			if at == p && t.names == 1 {
				return claiming
			}
			if at == p {
				return p
			}
		}
	}
	me := s.incarnation()
	n, epoch := s.entered(me)
	switch {
	case t.decides && n > t.names-1:
		return entered
	case s.sealed(me, epoch):
		return barrier
	case t.last.key == keyEndTxn && t.last.answer && t.names > 1:
		return ended
	case slices.Contains(slices.Collect(maps.Values(t.at)), open):
		return open
	case !t.read:
		return restoring
	}
	return waiting
}
