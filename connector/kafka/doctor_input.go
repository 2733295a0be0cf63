package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirstream/weir"
)

// inputs is what a source reads, and how.
type inputs struct {
	sourceConfig
	committed bool   // read_committed
	group     string // its positions are committed to it
}

// Examine looks at the cluster, the topics that are read, and where the checkpoint
// stands in them. It changes nothing.
func (s *source[T]) Examine(ctx context.Context, x weir.Examination) ([]weir.Finding, error) {
	if s.err != nil {
		return nil, s.err
	}
	return s.c.examine(ctx, x, func(ctx context.Context, e *exam) {
		e.examineInputs(ctx, inputs{s.conf, !s.conf.uncommitted, s.conf.groupOf(ctx, s.c)})
	})
}

// examineInputs looks at what a source reads.
func (e *exam) examineInputs(ctx context.Context, in inputs) {
	if in.group != "" {
		e.view.groups = append(e.view.groups, in.group) // sinks' transactions commit to it
	}
	names := in.topics.names
	if in.topics.match != nil {
		all, err := e.ask.topics(ctx, in.topics, e.prefixed()+".ckpt")
		if err != nil {
			e.unseen(in.topics.String(), "list the topics", err)
			return
		}
		for _, f := range all {
			names = append(names, f.name)
		}
		if len(names) == 0 {
			e.warn(in.topics.String(), "", "there is none yet, or the job may see none (Describe)")
		}
	}
	at := e.positionsByTopic()
	for _, name := range names {
		e.examineInput(ctx, name, in, at[name])
		delete(at, name)
	}
	for _, name := range sortedNames(at) {
		if in.topics.match != nil && in.topics.match.MatchString(name) {
			e.examineDeleted(name, at[name])
			continue
		}
		e.problem("topic "+name, "bring it back, or drop the source (--drop)", "the checkpoint has a position in it, and the source doesn't read it, or it doesn't exist any more")
	}
	if in.group != "" {
		e.examineGroup(ctx, in.group)
	}
}

// positionsByTopic are the checkpoint's positions by topic and partition.
func (e *exam) positionsByTopic() map[string]map[int32]position {
	out := map[string]map[int32]position{}
	for _, p := range e.Positions {
		topic, partition, err := parseSplit(p.Split)
		var at position
		if err == nil {
			at, err = parsePosition(p.At)
		}
		if err != nil {
			e.problem("checkpoint", "", "split %s: %v", p.Split, err)
			continue
		}
		if out[topic] == nil {
			out[topic] = map[int32]position{}
		}
		out[topic][partition] = at
	}
	return out
}

// What a job must be allowed on the topics that it reads, and on those that it
// writes: there it looks for what hangs, which takes Read.
const (
	readRights  = "--operation Read --operation Describe --operation DescribeConfigs --topic "
	writeRights = "--operation Write --operation Read --operation Describe --operation DescribeConfigs --topic "
)

// examineInput looks at one topic that is read.
func (e *exam) examineInput(ctx context.Context, name string, in inputs, at map[int32]position) {
	subject := "topic " + name
	t, err := e.topic(ctx, name)
	if err != nil {
		e.withheld(weir.LevelProblem, subject, "see it", readRights+name, err)
		return
	}
	if t.missing && len(at) == 0 && in.topics.create != nil {
		e.examineMissing(ctx, name, in.topics.create)
		return
	}
	if t.missing && len(at) > 0 {
		e.examineDeleted(name, at)
		return
	}
	if t.missing {
		e.problem(subject, fmt.Sprintf("create it, correct its name, or allow the job Describe on it:\n  kafka-topics.sh --bootstrap-server %s --create --topic %s --partitions 4", e.bootstrap(), name),
			"it doesn't exist, or the job may not see it")
		return
	}
	if !t.may(kmsg.ACLOperationRead) {
		e.problem(subject, "allow it:\n"+e.allow(readRights+name), "the job may not read it")
	}
	e.examineReplicas(t, weir.LevelWarning)
	if t.configsErr != nil {
		e.withheld(weir.LevelWarning, subject, "see its settings, so that retention isn't watched", readRights+name, t.configsErr)
	} else {
		e.examineCleaning(t, in)
	}
	bounds, err := e.bounds(ctx, []string{name})
	if err != nil {
		e.unseen(subject, "look for the offsets of topic "+name, err)
		return
	}
	e.examinePositions(t, bounds, at, in)
	e.examineRetention(ctx, t, bounds, at)
	if in.committed {
		e.examineHeld(ctx, t, bounds)
	}
}

// examineDeleted judges a topic that isn't there, and that the job has read.
func (e *exam) examineDeleted(name string, at map[int32]position) {
	parts := sortedKeys(at)
	n := parts[len(parts)-1] + 1
	e.problem("topic "+name, fmt.Sprintf("if it is there, allow the job Describe on it. A new topic of that name has another id, and the job refuses to go on in it, unless what the old one held is given up: "+
		"make it anew and start with AcceptLoss (--accept-loss where the job has that flag), or drop the source (--drop), or begin from nothing (--start-over). To make it:\n"+
		"  kafka-topics.sh --bootstrap-server %s --create --topic %s --partitions %d", e.bootstrap(), name, n),
		"it was deleted, or the job may not see it any more: the checkpoint has positions in %s of it, such as offset %d of %s", count(len(parts), "partition"), at[parts[0]].offset, splitName(name, parts[0]))
}

// examineCleaning looks at how old records go, and what timestamps mean.
func (e *exam) examineCleaning(t *seenTopic, in inputs) {
	subject := "topic " + t.name
	if slices.Contains(t.policies(), "compact") {
		e.warn(subject, "if it is a log of events, and not of the newest value of each key:\n"+e.alter(t.name, "cleanup.policy=delete"),
			"cleanup.policy=%s: of records with the same key older ones vanish, so that results depend on when they are read", t.configs["cleanup.policy"])
	}
	if in.require&Timestamp != 0 && t.configs["message.timestamp.type"] == "LogAppendTime" {
		e.warn(subject, "if the job takes event time from it:\n"+e.alter(t.name, "message.timestamp.type=CreateTime"),
			"message.timestamp.type=LogAppendTime: a message's time is when the broker got it, not when something happened")
	}
}

// examinePositions compares the checkpoint's positions with what there is.
func (e *exam) examinePositions(t *seenTopic, all map[string]bounds, at map[int32]position, in inputs) {
	level, fix := weir.LevelProblem, "restore the data, or go on behind the gap with AcceptLoss (--accept-loss where the job has that flag), or begin from nothing (--start-over)"
	if in.acceptLoss {
		level, fix = weir.LevelWarning, ""
	}
	good := 0
	for _, p := range sortedKeys(at) {
		name, pos := splitName(t.name, p), at[p]
		b, ok := all[name]
		switch {
		case pos.cluster != "" && e.view.id != "" && pos.cluster != e.view.id:
			e.problem(name, "connect to the cluster that the job has read, or begin from nothing (--start-over)", "the checkpoint was made on cluster %s, and this is %s", pos.cluster, e.view.id)
		case !ok:
			e.problem(name, fix, "the checkpoint stands at offset %d, and there is no such partition any more", pos.offset)
		case b.id != pos.topic:
			e.add(level, name, fix, "the topic was deleted and made again: the checkpoint stands at offset %d of topic id %v, and its id is %v now", pos.offset, pos.topic, b.id)
		case pos.offset < b.start:
			e.add(level, name, fix, "%d records are gone: the checkpoint stands at offset %d, and the partition begins at %d", b.start-pos.offset, pos.offset, b.start)
		case pos.offset > b.end:
			e.add(level, name, fix, "the log was cut: the checkpoint stands at offset %d, and the partition ends at %d", pos.offset, b.end)
		default:
			good++
		}
	}
	if good > 0 && good == len(at) {
		e.ok("topic "+t.name, "the checkpoint's positions are there, in %s", count(good, "partition"))
	}
}

func sortedKeys(m map[int32]position) []int32 {
	var out []int32
	for p := range m {
		out = append(out, p)
	}
	slices.Sort(out)
	return out
}

// examineHeld says who keeps the source from reading on.
func (e *exam) examineHeld(ctx context.Context, t *seenTopic, all map[string]bounds) {
	in := kadm.TopicsSet{}
	for name, b := range all {
		if _, p, err := parseSplit(name); err == nil && b.stable < b.end {
			in.Add(t.name, p)
		}
	}
	if len(in) == 0 {
		return
	}
	open, err := openIn(ctx, e.adm, in, e.ids()...)
	if err != nil {
		e.unseen("topic "+t.name, "see who holds back "+partitionsOf(map[string][]int32{t.name: partitionsIn(in, t.name)}), err)
		return
	}
	for _, o := range open {
		e.judgeForeign(o)
	}
}

// judgeForeign judges an open transaction that somebody else has in an input.
func (e *exam) judgeForeign(o *openTxn) {
	who := "a producer that no coordinator knows"
	if o.owner != "" {
		who = fmt.Sprintf("transactional id %s", o.owner)
	}
	switch o.standing {
	case hanging:
		e.problem("hanging transaction", fmt.Sprintf("whoever runs that producer must find out whether it was committed, and end it. As aborted:\n  kafka-transactions.sh --bootstrap-server %s abort --topic %s --partition %d --start-offset %d",
			e.bootstrap(), o.parts[0].topic, o.parts[0].partition, o.parts[0].start),
			"%s (%v) has left one in %s: its coordinator is done with it, no end will come, and nothing behind it is ever read", who, o, o.heldAt())
	case ending:
		e.ok("open transaction", "%s (%v) is ending one in %s", who, o, o.partitions())
	default:
		age := e.clock().Sub(o.since)
		if age < time.Minute {
			e.ok("open transaction", "%s has one open in %s, for %s: nothing behind it is read before it ends", who, o.partitions(), days(max(0, age)))
			return
		}
		e.warn("open transaction", "see what that producer waits for; the brokers abort its transaction after its timeout", "%s has one open in %s for %s (timeout %s): nothing behind it is read before it ends",
			who, o.heldAt(), days(age.Truncate(time.Second)), days(o.timeout))
	}
}

// examineGroup tries what the job does with its consumer group: it asks for its
// offsets, and says that it is there, as a member that there isn't.
func (e *exam) examineGroup(ctx context.Context, group string) {
	subject := "group " + group
	req := kmsg.NewPtrHeartbeatRequest()
	req.Group, req.MemberID, req.Generation = group, "doctor-is-no-member", 0
	resp, err := req.RequestWith(ctx, e.cl)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	switch {
	case errors.Is(err, kerr.GroupAuthorizationFailed):
		e.problem(subject, "allow it:\n"+e.allow("--operation Read --group "+group), "the job may not commit its offsets to it")
	case err == nil, errors.Is(err, kerr.UnknownMemberID), errors.Is(err, kerr.IllegalGeneration), errors.Is(err, kerr.GroupIDNotFound), errors.Is(err, kerr.RebalanceInProgress):
		if n := e.members(ctx, group); n > 0 {
			// Brokers take a transaction's offsets beside members, and no plain commit;
			// a job goes on in both cases, because it starts from its checkpoint.
			e.warn(subject, "stop them, or give the job a group of its own (kafka.Group)",
				"it has %s: the job runs all the same, but where its sinks' transactions commit offsets these and the members' overwrite each other, and otherwise the brokers refuse the job's", count(n, "member"))
			return
		}
		e.ok(subject, "the job may commit its offsets to it, for tools that show lag")
	default:
		e.unseen(subject, "try group "+group, err)
	}
}

// members is how many the group has, of whichever kind it is: a job joins none.
func (e *exam) members(ctx context.Context, group string) int {
	if all, err := e.adm.DescribeConsumerGroups(ctx, group); err == nil && all[group].Err == nil && len(all[group].Members) > 0 {
		return len(all[group].Members)
	}
	if all, err := e.adm.DescribeGroups(ctx, group); err == nil && all[group].Err == nil {
		return len(all[group].Members)
	}
	return 0
}

// allow is the command that gives the job's user a right.
func (e *exam) allow(what string) string {
	return fmt.Sprintf("  kafka-acls.sh --bootstrap-server %s --add --allow-principal User:%s %s", e.bootstrap(), e.user(), what)
}

// user is who the job logs in as.
func (e *exam) user() string {
	if u := e.c.login().user; u != "" {
		return u
	}
	return "WHO-THE-JOB-IS"
}

func partitionsIn(s kadm.TopicsSet, topic string) (out []int32) {
	for p := range s[topic] {
		out = append(out, p)
	}
	slices.Sort(out)
	return out
}
