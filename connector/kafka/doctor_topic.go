package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirstream/weir"
)

// seenTopic is a topic as it is now.
type seenTopic struct {
	kadm.TopicDetail
	name    string
	missing bool // or it may not be seen, which looks the same
	configs map[string]string
	// configsErr: they couldn't be read; configs is empty.
	configsErr error
}

// topic looks at a topic with its settings and what the job may do with it.
func (e *exam) topic(ctx context.Context, name string) (*seenTopic, error) {
	t := &seenTopic{name: name, configs: map[string]string{}}
	meta, err := e.adm.Metadata(kadm.WithAuthorizedOps(ctx), name)
	if err != nil {
		return nil, err
	}
	t.TopicDetail = meta.Topics[name]
	if errors.Is(t.Err, kerr.UnknownTopicOrPartition) {
		t.missing = true
		return t, nil
	}
	if t.Err != nil {
		return nil, t.Err
	}
	rc, err := e.adm.DescribeTopicConfigs(ctx, name)
	if err == nil && len(rc) == 1 {
		err = rc[0].Err
		for _, c := range rc[0].Configs {
			t.configs[c.Key] = c.MaybeValue()
		}
	}
	t.configsErr = err
	return t, nil
}

func (t *seenTopic) number(name string) (int64, bool) {
	n, err := strconv.ParseInt(t.configs[name], 10, 64)
	return n, err == nil
}

func (t *seenTopic) setMinISR(n int64) {
	t.configs["min.insync.replicas"] = strconv.FormatInt(n, 10)
}

// policies are what cleans the topic up: delete, compact, or both.
func (t *seenTopic) policies() []string { return policies(t.configs["cleanup.policy"]) }

func (t *seenTopic) may(op kmsg.ACLOperation) bool {
	return len(t.AuthorizedOperations) == 0 || slices.Contains(t.AuthorizedOperations, op) // none: the brokers don't tell
}

// examineReplicas judges whether what was acknowledged can be lost. single is how
// bad it is where there is one copy of something.
func (e *exam) examineReplicas(t *seenTopic, single weir.Level) {
	subject := "topic " + t.name
	var leaderless, behind, short []string
	copies := 0
	minISR, known := t.number("min.insync.replicas")
	for _, p := range t.Partitions.Sorted() {
		name := fmt.Sprintf("%s/%d", t.name, p.Partition)
		if copies == 0 || len(p.Replicas) < copies {
			copies = len(p.Replicas)
		}
		switch {
		case p.Leader < 0 || p.Err != nil:
			leaderless = append(leaderless, name)
		case known && int64(len(p.ISR)) < minISR:
			short = append(short, name)
		case len(p.ISR) < len(p.Replicas):
			behind = append(behind, name)
		}
	}
	if len(leaderless) > 0 {
		e.problem(subject, "bring the brokers back that hold them", "no broker leads %s: nothing can be read or written there", some(leaderless))
	}
	if len(short) > 0 {
		e.problem(subject, "bring the brokers back that hold the other copies", "%s have fewer copies in sync than min.insync.replicas=%d: nothing can be written there", some(short), minISR)
	}
	if len(behind) > 0 {
		e.warn(subject, "see why the other brokers don't keep up", "not all copies of %s are in sync", some(behind))
	}
	e.judgeCopies(t, copies, minISR, known, single)
	if t.configs["unclean.leader.election.enable"] == "true" && copies > 1 {
		e.problem(subject, "turn it off:\n"+e.alter(t.name, "unclean.leader.election.enable=false"),
			"unclean.leader.election.enable=true: a broker that is behind may take over, and what was committed is lost")
	}
}

// judgeCopies judges the number of copies, and how many must have what is
// acknowledged.
func (e *exam) judgeCopies(t *seenTopic, copies int, minISR int64, known bool, single weir.Level) {
	subject, brokers := "topic "+t.name, len(e.view.brokers)
	parts := count(len(t.Partitions), "partition")
	isr := func(n int) string { return "set it:\n" + e.alter(t.name, fmt.Sprintf("min.insync.replicas=%d", n)) }
	switch {
	case copies <= 1 && brokers <= 1:
		e.ok(subject, "%s, one copy each", parts) // that there is one broker was said
	case copies <= 1:
		e.add(single, subject, "add copies with kafka-reassign-partitions.sh; 3 is usual", "%s with one copy each: one broken disk loses what was committed", parts)
	case known && minISR > int64(copies):
		e.problem(subject, isr(copies-1), "min.insync.replicas=%d, and there are %d copies: nothing can be written", minISR, copies)
	case known && minISR < 2:
		e.warn(subject, isr(2), "%s, %d copies each, but min.insync.replicas=%d: what a broker alone has acknowledged is lost with it", parts, copies, minISR)
	case known && minISR == int64(copies):
		e.warn(subject, "add a copy with kafka-reassign-partitions.sh, or lower min.insync.replicas", "%s, %d copies each, and min.insync.replicas=%d: the job stands still as soon as one broker is away", parts, copies, minISR)
	case known:
		e.ok(subject, "%s, %d copies each, min.insync.replicas=%d", parts, copies, minISR)
	default:
		e.ok(subject, "%s, %d copies each", parts, copies)
	}
}

// guessVersion is kversion's guess for a broker that is a controller, too, or not.
func guessVersion(resp *kmsg.ApiVersionsResponse) string {
	return kversion.FromApiVersionsResponse(resp).VersionGuess()
}
