package rig

import (
	"bytes"
	"context"
	"encoding/json/v2"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/zeebo/xxh3"
)

// Reference is what the outputs of a workload must be, computed from the
// workload alone: what reads and writes Kafka has no part in it.
type Reference struct {
	w       Workload
	clicks  []int64 // by minute and ad
	first   []int64 // the same without repeats
	records sum
}

// sum stands for records in any order.
type sum struct {
	n    int64
	hash uint64
}

// add adds a record. The two parts are told apart: the key's hash is the seed
// of the value's.
func (s *sum) add(key, value []byte) {
	s.n++
	s.hash += xxh3.HashSeed(value, xxh3.Hash(key))
}

// NewReference computes the outputs of a workload.
func NewReference(w Workload) *Reference {
	minutes := 1 + w.Records/perSecond/60
	r := &Reference{w: w, clicks: make([]int64, minutes*Ads), first: make([]int64, minutes*Ads)}
	var key, value []byte
	for i := range w.Records {
		c := w.click(i)
		at := (c.at-firstClick)/60_000*Ads + int64(c.ad)
		r.clicks[at]++
		if !c.repeat {
			r.first[at]++
		}
		key, value = appendKey(key[:0], c.ad), appendValue(value[:0], c)
		r.records.add(key, value)
	}
	return r
}

// Check compares what a lap has written to a topic with what it should have.
func (r *Reference) Check(ctx context.Context, t *Topics, topic string, work Work) error {
	var err error
	switch work {
	case Copy:
		var got sum
		err = t.Read(ctx, topic, func(rec *kgo.Record) error {
			got.add(rec.Key, rec.Value)
			return nil
		})
		if err == nil && got != r.records {
			err = fmt.Errorf("%d records with sum %x, but %d with sum %x were to be copied", got.n, got.hash, r.records.n, r.records.hash)
		}
	case Count:
		err = r.counts(ctx, t, topic, r.clicks)
	case Dedup:
		err = r.counts(ctx, t, topic, r.first)
	}
	if err != nil {
		return fmt.Errorf("the result in %s is wrong, its figures count for nothing: %w", topic, err)
	}
	return nil
}

// counts compares the last value of each key with the reference.
func (r *Reference) counts(ctx context.Context, t *Topics, topic string, want []int64) error {
	got := make([]int64, len(want))
	err := t.Read(ctx, topic, func(rec *kgo.Record) error {
		at, clicks, err := r.countOf(rec)
		if err != nil {
			return fmt.Errorf("partition %d, offset %d, key %q, value %q: %w", rec.Partition, rec.Offset, rec.Key, rec.Value, err)
		}
		got[at] = clicks
		return nil
	})
	if err != nil {
		return err
	}
	wrong, example := 0, ""
	for at, n := range want {
		if got[at] != n {
			wrong++
			example = fmt.Sprintf("%q has %d clicks, want %d", r.keyOf(at), got[at], n)
		}
	}
	if wrong > 0 {
		return fmt.Errorf("%d of %d counts differ, such as: %s", wrong, len(want), example)
	}
	return nil
}

func (r *Reference) keyOf(at int) string {
	minute := time.UnixMilli(firstClick).Add(time.Duration(at/Ads) * time.Minute)
	return fmt.Sprintf("ad-%04d|%s", at%Ads, minute.UTC().Format(time.RFC3339))
}

// countOf reads one record of the output: key AD|MINUTE, and a value with the
// same two and the clicks.
func (r *Reference) countOf(rec *kgo.Record) (at int, clicks int64, err error) {
	var v struct {
		Ad     string    `json:"ad_id"`
		Minute time.Time `json:"minute"`
		Clicks int64     `json:"clicks"`
	}
	if err := json.Unmarshal(rec.Value, &v); err != nil {
		return 0, 0, err
	}
	digits, ok := bytes.CutPrefix([]byte(v.Ad), []byte("ad-"))
	ad, err := strconv.Atoi(string(digits))
	if !ok || err != nil || ad < 0 || ad >= Ads {
		return 0, 0, errors.New("there is no such ad")
	}
	minute := v.Minute.UnixMilli() - firstClick
	at = int(minute/60_000)*Ads + ad
	if minute < 0 || at >= len(r.clicks) || string(rec.Key) != r.keyOf(at) {
		return 0, 0, errors.New("the key doesn't belong to the value, or the minute isn't one of the input")
	}
	return at, v.Clicks, nil
}
