package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// openPart is what a transaction holds open in a partition.
type openPart struct {
	topic       string
	partition   int32
	start       int64 // offset of its first record there
	coordinator int32 // epoch of the coordinator that wrote the producer's last marker there; 0: none did
}

func (p openPart) String() string { return splitName(p.topic, p.partition) }

// openTxn is a transaction that partitions' leaders hold open. Its producer's id
// and epoch name it: each transaction has an epoch of its own.
type openTxn struct {
	producer int64
	epoch    int16
	parts    []openPart
	// What the coordinator says, if one knows the producer.
	owner      string // transactional id; "": nobody knows it
	state      string
	ownerEpoch int16     // the producer's epoch there
	since      time.Time // of an open one
	timeout    time.Duration
	standing   standing
}

// standing is how a transaction that is open in partitions stands to its
// coordinator.
type standing int

const (
	running standing = iota // the coordinator has it open, too, and will end it
	ending                  // the coordinator is writing the markers
	hanging                 // the coordinator is done with it: no marker will come
)

// partitions names them for messages.
func (t *openTxn) partitions() string {
	names := make([]string, len(t.parts))
	for i, p := range t.parts {
		names[i] = p.String()
	}
	return some(names)
}

// mostNamed is how many partitions a message names.
const mostNamed = 16

// heldAt names them with the offsets from which on nothing is visible.
func (t *openTxn) heldAt() string {
	var b strings.Builder
	for i, p := range t.parts {
		switch {
		case i == mostNamed:
			fmt.Fprintf(&b, " and %d more", len(t.parts)-i)
			return b.String()
		case i == 0:
			fmt.Fprintf(&b, "%v from offset %d", p, p.start)
		case p.topic != t.parts[i-1].topic:
			fmt.Fprintf(&b, ", %v from %d", p, p.start)
		default:
			fmt.Fprintf(&b, ", /%d from %d", p.partition, p.start)
		}
	}
	return b.String()
}

func (t *openTxn) String() string {
	return fmt.Sprintf("producer %d, epoch %d", t.producer, t.epoch)
}

type txnKey struct {
	producer int64
	epoch    int16
}

// openIn lists the transactions that are open in these partitions. Leaders are
// asked, then coordinators, then leaders again: what is hanging was so throughout.
// own are the job's transactional ids, which it may describe.
func openIn(ctx context.Context, adm *kadm.Client, in kadm.TopicsSet, own ...string) ([]*openTxn, error) {
	before, err := openAtLeaders(ctx, adm, in)
	if err != nil || len(before) == 0 {
		return nil, err
	}
	told, err := coordinated(ctx, adm, before, own)
	if err != nil {
		return nil, err
	}
	after, err := openAtLeaders(ctx, adm, in)
	if err != nil {
		return nil, err
	}
	var out []*openTxn
	for k, t := range before {
		again := after[k]
		if again == nil {
			continue // ended meanwhile
		}
		t.parts = slices.DeleteFunc(t.parts, func(p openPart) bool { return !slices.Contains(again.parts, p) })
		if len(t.parts) == 0 {
			continue
		}
		t.ask(told)
		out = append(out, t)
	}
	slices.SortFunc(out, func(a, b *openTxn) int {
		return cmp.Or(cmp.Compare(a.producer, b.producer), cmp.Compare(a.epoch, b.epoch))
	})
	return out, nil
}

// coordinated asks the coordinators about the producers of transactions.
func coordinated(ctx context.Context, adm *kadm.Client, open map[txnKey]*openTxn, own []string) (kadm.DescribedTransactions, error) {
	known := map[int64]bool{}
	var producers []int64
	for k := range open {
		producers = append(producers, k.producer)
	}
	listed, err := adm.ListTransactions(ctx, producers, nil)
	if err != nil {
		return nil, fmt.Errorf("list the transactions of %s: %w", count(len(producers), "producer"), err)
	}
	names := slices.Concat(listed.TransactionalIDs(), own)
	slices.Sort(names)
	names = slices.Compact(names)
	if len(names) == 0 {
		return nil, loaded(ctx, adm, own)
	}
	told, err := adm.DescribeTransactions(ctx, names...)
	if err != nil {
		return nil, fmt.Errorf("describe the transactions of %s: %w", some(names), err)
	}
	for _, d := range told {
		if d.Err != nil && !errors.Is(d.Err, kerr.TransactionalIDNotFound) {
			return nil, fmt.Errorf("describe the transaction of %s: %w", d.TxnID, d.Err)
		}
		if d.Err == nil {
			known[d.ProducerID] = true
		}
	}
	for _, p := range producers {
		if !known[p] {
			return told, loaded(ctx, adm, own)
		}
	}
	return told, nil
}

// loaded returns an error as long as not all coordinators have read their logs: a
// broker that has just started lists no transactions, and doesn't say why. So each
// part of the log is asked about a name that belongs there and that nobody has.
func loaded(ctx context.Context, adm *kadm.Client, own []string) error {
	meta, err := adm.Metadata(ctx, txnStateTopic)
	if err != nil || meta.Topics[txnStateTopic].Err != nil {
		return nil //nolint:nilerr // who may not see it has to believe the list
	}
	n := int32(len(meta.Topics[txnStateTopic].Partitions))
	stem := "weir"
	if len(own) > 0 {
		stem = own[0]
	}
	var names []string
	for i, found := 0, map[int32]bool{}; int32(len(found)) < n && i < 1<<14; i++ {
		name := fmt.Sprintf("%s-nobody-%d", stem, i)
		if p := homeOf(name, n); !found[p] {
			found[p] = true
			names = append(names, name)
		}
	}
	told, err := adm.DescribeTransactions(ctx, names...)
	if err != nil {
		if denied(err) {
			return nil // likewise
		}
		return fmt.Errorf("see whether the coordinators have read their logs: %w", err)
	}
	for _, d := range told {
		if d.Err != nil && !errors.Is(d.Err, kerr.TransactionalIDNotFound) {
			return fmt.Errorf("see whether the coordinators have read their logs: %w", d.Err)
		}
	}
	if len(told) < len(names) {
		return fmt.Errorf("see whether the coordinators have read their logs: %w", kerr.CoordinatorNotAvailable)
	}
	return nil
}

// openAtLeaders asks the partitions' leaders.
func openAtLeaders(ctx context.Context, adm *kadm.Client, in kadm.TopicsSet) (map[txnKey]*openTxn, error) {
	if len(in) == 0 {
		return nil, nil // to the request that would mean all partitions that there are
	}
	all, err := adm.DescribeProducers(ctx, maps.Clone(in))
	if err != nil {
		return nil, fmt.Errorf("describe the producers of %s: %w", some(in.Topics()), err)
	}
	open := map[txnKey]*openTxn{}
	for _, p := range all.SortedPartitions() {
		if p.Err != nil {
			return nil, fmt.Errorf("describe the producers of %s: %w", splitName(p.Topic, p.Partition), p.Err)
		}
		for _, d := range p.ActiveProducers.Sorted() {
			if d.CurrentTxnStartOffset < 0 {
				continue
			}
			k := txnKey{d.ProducerID, d.ProducerEpoch}
			if open[k] == nil {
				open[k] = &openTxn{producer: d.ProducerID, epoch: d.ProducerEpoch}
			}
			open[k].parts = append(open[k].parts, openPart{d.Topic, d.Partition, d.CurrentTxnStartOffset, max(0, d.CoordinatorEpoch)})
		}
	}
	return open, nil
}

// ask takes what the coordinator says about the producer.
func (t *openTxn) ask(told kadm.DescribedTransactions) {
	t.standing = hanging
	for _, d := range told.Sorted() {
		if d.Err != nil || d.ProducerID != t.producer {
			continue
		}
		t.owner, t.state, t.ownerEpoch, t.timeout = d.TxnID, d.State, d.ProducerEpoch, time.Duration(d.TimeoutMillis)*time.Millisecond
		t.standing = standingOf(t.epoch, d.State, d.ProducerEpoch)
		if t.standing == running && d.StartTimestamp > 0 {
			t.since = time.UnixMilli(d.StartTimestamp)
		}
		return
	}
}

// standingOf compares the epoch that a partition's leader has open with what the
// coordinator says of the producer. With transaction.version 2 the coordinator's
// epoch is one more as soon as it has decided; brokers of 4.0.0 and before add one
// more where they abort because the producer is initialized anew.
func standingOf(open int16, state string, epoch int16) standing {
	switch {
	case state == "Ongoing" && epoch == open:
		return running
	case strings.HasPrefix(state, "Prepare") && epoch >= open && int(epoch) <= int(open)+2:
		return ending
	}
	return hanging
}

// owns reports whether a transactional id is one of the job's: of any worker, so
// that a process sees what its neighbours have left.
func (e *exam) owns(id string) bool {
	rest, ok := strings.CutPrefix(id, e.prefixed()+"-")
	if !ok {
		return false
	}
	worker, which, ok := strings.Cut(rest, "-")
	n, err := strconv.Atoi(worker)
	return ok && err == nil && n >= 0 && strconv.Itoa(n) == worker && (which == "a" || which == "b")
}

// heldBack are the partitions whose stable end is before their end.
func heldBack(ctx context.Context, adm *kadm.Client, topics ...string) (map[string][]int32, error) {
	ends, err := adm.ListEndOffsets(ctx, topics...) // these first: they only grow
	if err != nil {
		return nil, err
	}
	stable, err := adm.ListCommittedOffsets(ctx, topics...)
	if err != nil {
		return nil, err
	}
	out := map[string][]int32{}
	for _, end := range sorted(ends) {
		at, ok := stable.Lookup(end.Topic, end.Partition)
		if err := cmp.Or(end.Err, at.Err); err != nil {
			return nil, fmt.Errorf("%s: %w", splitName(end.Topic, end.Partition), err)
		}
		if !ok || at.Offset < end.Offset {
			out[end.Topic] = append(out[end.Topic], end.Partition)
		}
	}
	return out, nil
}
