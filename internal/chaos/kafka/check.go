package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/weirstream/weir/internal/chaos/trial"
	"github.com/weirstream/weir/internal/kafkalab"
)

// verdict is what is wrong with an output.
type verdict struct {
	records, epochs    int
	lost, dup, changed int
	first              []string
}

func (v *verdict) note(count *int, format string, args ...any) {
	*count++
	if len(v.first) < 5 {
		v.first = append(v.first, fmt.Sprintf(format, args...))
	}
}

func (v *verdict) wrong() int { return v.lost + v.dup + v.changed }

func (v *verdict) add(o verdict) {
	v.records, v.epochs = v.records+o.records, v.epochs+o.epochs
	v.lost, v.dup, v.changed = v.lost+o.lost, v.dup+o.dup, v.changed+o.changed
}

// update is one record of the output.
type update struct {
	spot
	cell
	clicks int64
}

func (u update) String() string {
	return fmt.Sprintf("%s = %d (partition %d, offset %d)", u.key(), u.clicks, u.partition, u.offset)
}

// updates reads the output as it must be written.
func updates(recs []kafkalab.Record) ([]update, error) {
	var all []update
	for _, r := range recs {
		var v struct {
			Ad     string `json:"ad_id"`
			Minute string `json:"minute"`
			Clicks int64  `json:"clicks"`
		}
		d := json.NewDecoder(bytes.NewReader(r.Value))
		d.DisallowUnknownFields()
		if err := d.Decode(&v); err != nil {
			return nil, trial.Failed("partition %d, offset %d of the output has the value %q: %v", r.Partition, r.Offset, r.Value, err)
		}
		u := update{spotOf(r), cell{v.Ad, v.Minute}, v.Clicks}
		if u.key() != string(r.Key) {
			return nil, trial.Failed("partition %d, offset %d of the output has the key %q and the value %s", r.Partition, r.Offset, string(r.Key), r.Value)
		}
		all = append(all, u)
	}
	return all, nil
}

// sequence holds the output alone to what everything must amount to. A window is
// written only when its count has grown, so each count of it is larger than the
// one before; and a key stays in one partition.
func sequence(out []update, want table) verdict {
	v := verdict{records: len(out)}
	last := map[cell]update{}
	for _, u := range out {
		was, seen := last[u.cell]
		switch {
		case seen && u.partition != was.partition:
			v.note(&v.changed, "%s, which was in another partition before: %s", u, was)
		case seen && u.clicks <= was.clicks:
			v.note(&v.dup, "%s, behind %s", u, was)
			continue // the newest is what a reader would take; the largest is what was meant
		}
		last[u.cell] = u
	}
	for k, n := range want {
		switch u, seen := last[k]; {
		case !seen:
			v.note(&v.lost, "%s is missing: should be %d", k.key(), n)
		case u.clicks < n:
			v.note(&v.lost, "%s: should be %d", u, n)
		case u.clicks > n:
			v.note(&v.changed, "%s: should be %d", u, n)
		}
	}
	for k, u := range last {
		if _, known := want[k]; !known {
			v.note(&v.changed, "%s: no click amounts to it", u)
		}
	}
	return v
}

// epochs holds each transaction to its own epoch: its outputs are those that the
// clicks between its checkpoint and the one before it amount to, all of them,
// each once; and nothing is in a transaction that names no checkpoint.
func (j *job) epochs(in map[string][]click, out []update, control []kafkalab.Record, of, names map[spot]transaction) (verdict, error) {
	v := verdict{}
	s, err := readStore(j.state)
	if err != nil {
		return v, err
	}
	byTransaction := map[transaction][]update{}
	for _, u := range out {
		t, known := of[u.spot]
		if !known {
			return v, trial.Failed("kcat reads %s, and the other reader doesn't", u)
		}
		byTransaction[t] = append(byTransaction[t], u)
	}
	if len(of) != len(out) {
		return v, trial.Failed("kcat reads %d records of the output, and the other reader %d", len(out), len(of))
	}
	count, parent, next := newTally(j.rules), "", int64(0)
	for _, r := range control {
		id, claim, err := namedBy(r, parent)
		if err != nil {
			return v, err
		}
		t := names[spotOf(r)]
		if claim {
			continue // what a claim's transaction has written is found below
		}
		e, found := s.checkpoint(id)
		switch {
		case !found:
			return v, trial.Failed("offset %d of the control topic names checkpoint %q, which the store doesn't have", r.Offset, id)
		case e.Manifest.Parent != parent:
			return v, trial.Failed("offset %d of the control topic names checkpoint %s, behind %q, but its parent is %q", r.Offset, id, parent, e.Manifest.Parent)
		case e.Manifest.Epoch != next:
			return v, trial.Failed("offset %d of the control topic names checkpoint %s of epoch %d, and epoch %d is next", r.Offset, id, e.Manifest.Epoch, next)
		}
		parent, next = id, next+1
		want, err := count.advance(in, e.Read())
		if err != nil {
			return v, err
		}
		v.epoch(e.Manifest.Epoch, byTransaction[t], want)
		delete(byTransaction, t)
	}
	for t, us := range byTransaction {
		for _, u := range us {
			v.note(&v.dup, "%s is in transaction %v, which names no checkpoint", u, t)
		}
	}
	return v, nil
}

// namedBy is the checkpoint that a control record names, behind the one named
// last. A start claims the producers by naming that one again.
func namedBy(r kafkalab.Record, last string) (id string, claim bool, err error) {
	var c struct{ Checkpoint, Parent string }
	if err := json.Unmarshal(r.Value, &c); err != nil {
		return "", false, trial.Failed("offset %d of the control topic: %v: %q", r.Offset, err, r.Value)
	}
	if c.Parent != last {
		return "", false, trial.Failed("offset %d of the control topic names checkpoint %q and the parent %q, behind %q", r.Offset, c.Checkpoint, c.Parent, last)
	}
	return c.Checkpoint, c.Checkpoint == c.Parent, nil
}

func (v *verdict) epoch(n int64, got []update, want map[cell]int64) {
	v.epochs++
	seen := map[cell]bool{}
	for _, u := range got {
		clicks, wanted := want[u.cell]
		switch {
		case seen[u.cell]:
			v.note(&v.dup, "epoch %d has %s twice", n, u)
		case !wanted:
			v.note(&v.changed, "epoch %d has %s, which it didn't change", n, u)
		case u.clicks != clicks:
			v.note(&v.changed, "epoch %d has %s: should be %d", n, u, clicks)
		}
		seen[u.cell] = true
	}
	for k, clicks := range want {
		if !seen[k] {
			v.note(&v.lost, "epoch %d has no %s: should be %d", n, k.key(), clicks)
		}
	}
}

// settled waits until nothing of the job is open at the brokers: no transaction,
// and no partition whose readers are held back.
func (j *job) settled(ctx context.Context, topics ...string) error {
	var left string
	err := until(ctx, "until no transaction was open", 20*time.Millisecond, func() (bool, error) {
		var err error
		left, err = j.openAt(ctx, topics)
		return left == "", err
	})
	if err != nil && left != "" {
		return fmt.Errorf("%w: %s", err, left)
	}
	return err
}

// openAt says what is open, "" for nothing.
func (j *job) openAt(ctx context.Context, topics []string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	all, err := j.lab.adm.ListTransactions(ctx, nil, nil)
	if err != nil {
		return "", fmt.Errorf("list the transactions: %w", err)
	}
	for id, t := range all {
		if strings.HasPrefix(id, j.prefix) && t.State != "Empty" && t.State != "CompleteCommit" && t.State != "CompleteAbort" {
			return fmt.Sprintf("transaction of %s: %s", id, t.State), nil
		}
	}
	d, err := j.lab.adm.ListTopics(ctx, topics...)
	if err == nil {
		err = d.Error()
	}
	if err != nil {
		return "", fmt.Errorf("look at the topics: %w", err)
	}
	producers, err := j.lab.adm.DescribeProducers(ctx, d.TopicsSet())
	if err != nil {
		return "", fmt.Errorf("describe the producers: %w", err)
	}
	left := ""
	producers.EachProducer(func(p kadm.DescribedProducer) {
		if p.CurrentTxnStartOffset >= 0 {
			left = fmt.Sprintf("%s/%d is held back from offset %d on by producer %d", p.Topic, p.Partition, p.CurrentTxnStartOffset, p.ProducerID)
		}
	})
	if left != "" {
		return left, nil
	}
	return j.heldBack(ctx, topics)
}

// heldBack says which partition has an end that readers of what is committed
// don't reach.
func (j *job) heldBack(ctx context.Context, topics []string) (left string, err error) {
	ends, err := j.lab.adm.ListEndOffsets(ctx, topics...)
	if err != nil {
		return "", fmt.Errorf("ends of the topics: %w", err)
	}
	stable, err := j.lab.adm.ListCommittedOffsets(ctx, topics...)
	if err != nil {
		return "", fmt.Errorf("stable ends of the topics: %w", err)
	}
	ends.Each(func(e kadm.ListedOffset) {
		if s, ok := stable.Lookup(e.Topic, e.Partition); !ok || s.Offset < e.Offset {
			left = fmt.Sprintf("%s/%d can be read up to %d of %d", e.Topic, e.Partition, s.Offset, e.Offset)
		}
	})
	return left, nil
}

// lag holds the group's offsets to the ends of the input: everything was read.
func (j *job) lag(ctx context.Context, in map[string][]click) error {
	got, err := j.lab.adm.FetchOffsets(ctx, j.group)
	if err == nil {
		err = got.Error()
	}
	if err != nil {
		return fmt.Errorf("offsets of the group: %w", err)
	}
	for split, clicks := range in {
		var p int32
		_, _ = fmt.Sscanf(split[strings.LastIndexByte(split, '/')+1:], "%d", &p)
		o, ok := got.Lookup(j.topic("in"), p)
		if !ok || o.At != int64(len(clicks)) {
			return trial.Failed("the group %s has offset %d for %s, which ends at %d: lag %d", j.group, o.At, split, len(clicks), int64(len(clicks))-o.At)
		}
	}
	return nil
}

// list is the first few faults.
func (v *verdict) list() string { return "\n  " + strings.Join(v.first, "\n  ") }
