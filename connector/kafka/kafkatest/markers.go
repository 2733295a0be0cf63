package kafkatest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Markers makes the transactions of a kfake cluster end as on a real broker:
// see [LateMarkers]. Its methods may be called from any goroutine.
type Markers struct {
	t     testing.TB
	c     *kfake.Cluster
	after time.Duration
	own   *kgo.Client // asks how a transaction stands, and ends it

	mu      sync.Mutex
	pending map[string]bool // transactional ids between EndTxn's answer and their markers
	release chan struct{}   // closed when those that are pending shall end
	stopped bool
	late    int
	refused int
	running sync.WaitGroup
}

// ownEnd tags the EndTxn by which Markers itself ends a transaction: a tagged
// field is the one place of a request that a client leaves alone.
const ownEnd uint32 = 9999

// LateMarkers puts the time that a real broker takes between EndTxn's answer
// and the markers, some milliseconds, into c: there, EndTxn is answered when
// the decision is durable. Until after has passed
//
//   - the transaction's records and those behind them are not visible to who
//     reads committed, and its offsets are UNSTABLE_OFFSET_COMMIT to a stable
//     OffsetFetch;
//   - whatever else the transactional id asks for is answered with
//     CONCURRENT_TRANSACTIONS: Produce, AddPartitionsToTxn, AddOffsetsToTxn,
//     TxnOffsetCommit, InitProducerId, and EndTxn once more.
//
// With a negative after they wait for [Markers.Release], which a test can call
// when it has seen what it came for.
//
// It holds for every transaction from the call on, except at EndTxn before
// version 5 and at the last epoch of a producer id, until t has ended.
//
// For a single code, as an answer to the n-th request of a kind, use the
// cluster's own Fault.
func LateMarkers(t testing.TB, c *kfake.Cluster, after time.Duration) *Markers {
	t.Helper()
	m := &Markers{t: t, c: c, after: after, own: Client(t, c.ListenAddrs()),
		pending: map[string]bool{}, release: make(chan struct{})}
	faults := c.Fault(kfake.Fault{
		Keys: []kmsg.Key{kmsg.Produce, kmsg.AddPartitionsToTxn, kmsg.AddOffsetsToTxn,
			kmsg.TxnOffsetCommit, kmsg.InitProducerID},
		Err:   kerr.ConcurrentTransactions,
		Count: -1,
		When:  m.refuse,
	})
	c.ControlKey(int16(kmsg.EndTxn), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		resp := m.end(req.(*kmsg.EndTxnRequest))
		if resp == nil {
			return nil, nil, false
		}
		return resp, nil, true
	})
	t.Cleanup(func() {
		m.mu.Lock()
		m.stopped = true
		m.mu.Unlock()
		faults.Remove()
		m.Release()
		m.running.Wait()
	})
	return m
}

// Release writes the markers of what is pending now; those of later
// transactions wait anew.
func (m *Markers) Release() {
	m.mu.Lock()
	defer m.mu.Unlock()
	close(m.release)
	m.release = make(chan struct{})
}

// Late returns how many transactions got their markers after the answer.
func (m *Markers) Late() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.late
}

// Refused returns how many requests met CONCURRENT_TRANSACTIONS.
func (m *Markers) Refused() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.refused
}

// refuse reports whether req comes from a transactional id whose markers are
// under way. It runs on the cluster's goroutine.
func (m *Markers) refuse(req kmsg.Request) bool {
	id := transactionalID(req)
	m.mu.Lock()
	defer m.mu.Unlock()
	if id == "" || !m.pending[id] {
		return false
	}
	m.refused++
	return true
}

func transactionalID(req kmsg.Request) string {
	var id *string
	switch r := req.(type) {
	case *kmsg.ProduceRequest:
		id = r.TransactionID
	case *kmsg.InitProducerIDRequest:
		id = r.TransactionalID
	case *kmsg.AddPartitionsToTxnRequest:
		id = &r.TransactionalID
	case *kmsg.AddOffsetsToTxnRequest:
		id = &r.TransactionalID
	case *kmsg.TxnOffsetCommitRequest:
		id = &r.TransactionalID
	}
	if id == nil {
		return ""
	}
	return *id
}

// end answers an EndTxn that would end an open transaction, and leaves the
// rest to the cluster, as nil: what is refused there, and what has nothing to
// end.
func (m *Markers) end(req *kmsg.EndTxnRequest) kmsg.Response {
	if req.Version < 5 || isOwn(req) || req.ProducerEpoch >= 32766 {
		return nil
	}
	var open bool
	if !m.underWay(req.TransactionalID) {
		m.c.SleepControl(func() { open = m.open(req) })
	}
	resp := req.ResponseKind().(*kmsg.EndTxnResponse)
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.pending[req.TransactionalID]: // also one that came while this one slept
		m.refused++
		resp.ErrorCode = kerr.ConcurrentTransactions.Code
		return resp
	case !open || m.stopped:
		return nil
	}
	m.pending[req.TransactionalID] = true
	m.late++
	release := m.release
	m.running.Go(func() { m.write(release, req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit) })
	resp.ProducerID, resp.ProducerEpoch = req.ProducerID, req.ProducerEpoch+1
	return resp
}

func (m *Markers) underWay(id string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.pending[id]
}

func isOwn(req *kmsg.EndTxnRequest) (own bool) {
	req.UnknownTags.Each(func(key uint32, _ []byte) { own = own || key == ownEnd })
	return own
}

// open reports whether the transaction that req would end is open, and req
// comes from its owner.
func (m *Markers) open(req *kmsg.EndTxnRequest) bool {
	ctx, cancel := patient()
	defer cancel()
	ask := kmsg.NewPtrDescribeTransactionsRequest()
	ask.TransactionalIDs = []string{req.TransactionalID}
	resp, err := ask.RequestWith(ctx, m.own)
	if err != nil || len(resp.TransactionStates) != 1 {
		return false
	}
	s := resp.TransactionStates[0]
	return s.ErrorCode == 0 && s.State == "Ongoing" && s.ProducerID == req.ProducerID && s.ProducerEpoch == req.ProducerEpoch
}

// write ends the transaction for good, once its time has come.
func (m *Markers) write(release <-chan struct{}, id string, producer int64, epoch int16, commit bool) {
	var due <-chan time.Time // never, if it waits for release alone
	if m.after >= 0 {
		due = time.After(m.after)
	}
	select {
	case <-due:
	case <-release:
	}
	ctx, cancel := patient()
	defer cancel()
	if err := m.apply(ctx, id, producer, epoch, commit); err != nil {
		m.t.Errorf("the late markers of %s (producer %d, epoch %d, commit %t): %v", id, producer, epoch, commit, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.pending, id)
}

func (m *Markers) apply(ctx context.Context, id string, producer int64, epoch int16, commit bool) error {
	req := kmsg.NewPtrEndTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = id, producer, epoch, commit
	req.UnknownTags.Set(ownEnd, nil)
	resp, err := req.RequestWith(ctx, m.own)
	if err != nil {
		return err
	}
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return fmt.Errorf("its decision was answered, and is refused now: %w", err)
	}
	return nil
}
