package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/internal/sys"
)

// declared is what a sink of this package says of itself, whatever its records are.
type declared interface{ declared() *sinkConfig }

func (s sink[T]) declared() *sinkConfig { return &s.conf }

// Examine looks at the cluster, the sinks' topics and, of transactional sinks, at
// what transactions need and what they have left open. It changes nothing.
func (s sink[T]) Examine(ctx context.Context, x weir.Examination) ([]weir.Finding, error) {
	var confs []*sinkConfig
	for _, p := range x.Peers {
		if d, ok := p.(declared); ok {
			confs = append(confs, d.declared())
		}
	}
	return s.c.examine(ctx, x, func(ctx context.Context, e *exam) {
		if !s.conf.atLeastOnce {
			e.examineTransactions(ctx, s.c.shared.agreed().timeout)
			e.examineIDs(ctx)
			e.examineControl(ctx)
		}
		written := e.written()
		topics := map[string]*sinkConfig{}
		for _, c := range confs {
			for _, t := range c.topics() {
				if topics[t] == nil || topics[t].create == nil {
					topics[t] = c
				}
			}
		}
		var there []string
		for _, name := range sortedNames(topics) {
			if e.examineOutput(ctx, name, topics[name], written[name]) {
				there = append(there, name)
			}
		}
		if !s.conf.atLeastOnce {
			e.examineOpen(ctx, there)
		}
	})
}

func sortedNames[V any](m map[string]V) []string {
	var out []string
	for n := range m {
		out = append(out, n)
	}
	slices.Sort(out)
	return out
}

// control is the name of the job's control topic.
func (e *exam) control() string { return e.prefixed() + controlSuffix }

// ids are the transactional ids of this worker.
func (e *exam) ids() []string {
	ids := e.c.txids(e.Job)
	return ids[:]
}

// writtenTopic is what the control topic says of a topic.
type writtenTopic struct {
	id string
	to weir.CheckpointID // output up to it was committed; zero: none was
}

// written are the topics to which the ledgers of the sinks say that output was
// committed. A start refuses them if they aren't those any more.
func (e *exam) written() map[string]writtenTopic {
	out := map[string]writtenTopic{}
	if e.last.own == nil || e.StartOver {
		return out
	}
	for i, p := range e.Peers {
		d, ok := p.(declared)
		to := e.last.own.ids[e.Sinks[i]]
		if !ok || to.IsZero() {
			continue
		}
		for _, name := range d.declared().topics() {
			if id, ok := e.last.own.Topics[name]; ok {
				out[name] = writtenTopic{id, to}
			}
		}
	}
	return out
}

// compare says that a topic isn't the one any more to which output was committed.
func (w writtenTopic) compare(e *exam, t *seenTopic) bool {
	is := topicID(t.ID).String()
	if w.to.IsZero() || !t.missing && is == w.id {
		return true
	}
	state := "is gone, or the job may not see it any more"
	if !t.missing {
		state = fmt.Sprintf("was made anew (its id was %s and is %s)", w.id, is)
	}
	e.problem("topic "+t.name, "if it is there, allow the job Describe on it; otherwise start over with --start-over (StartOver), or give the sink another id and topic",
		"it %s, but the control topic says that output up to checkpoint %d was committed to it: the job refuses to go on", state, w.to.Slot)
	return false
}

// examineOutput looks at a topic that is written, and reports whether it exists.
func (e *exam) examineOutput(ctx context.Context, name string, conf *sinkConfig, was writtenTopic) bool {
	subject := "topic " + name
	t, err := e.topic(ctx, name)
	if err != nil {
		e.withheld(weir.LevelProblem, subject, "see it", writeRights+name, err)
		return false
	}
	same := was.compare(e, t)
	if t.missing {
		if same {
			e.examineMissing(ctx, name, conf.create)
		}
		return false
	}
	if !t.may(kmsg.ACLOperationWrite) {
		e.problem(subject, "allow it:\n"+e.allow(writeRights+name), "the job may not write to it")
	}
	if !conf.atLeastOnce && !t.may(kmsg.ACLOperationRead) {
		e.problem(subject, "allow it:\n"+e.allow(writeRights+name), "the job may not read it, and so not see whether a transaction hangs there: it would refuse to start")
	}
	e.examineReplicas(t, weir.LevelWarning)
	if t.configsErr != nil {
		e.withheld(weir.LevelProblem, subject, "see its settings, which the sink must know", writeRights+name, t.configsErr)
		return true
	}
	if conf.eventTime && t.configs["message.timestamp.type"] == "LogAppendTime" {
		e.warn(subject, "set it, or leave StampEventTime out:\n"+e.alter(name, "message.timestamp.type=CreateTime"),
			"message.timestamp.type=LogAppendTime: the event times that the sink gives its messages are replaced by the time of their arrival")
	}
	if n, ok := t.number("max.message.bytes"); ok && n < 64<<10 {
		e.warn(subject, "raise it:\n"+e.alter(name, "max.message.bytes=1048588"), "max.message.bytes=%d: longer messages are rejected", n)
	}
	return true
}

// examineMissing says what becomes of an output topic that doesn't exist.
func (e *exam) examineMissing(ctx context.Context, name string, how *creation) {
	subject := "topic " + name
	if how == nil {
		e.problem(subject, fmt.Sprintf("create it, correct its name, allow the job Describe on it, or give the sink CreateTopics:\n  kafka-topics.sh --bootstrap-server %s --create --topic %s --partitions 4", e.bootstrap(), name),
			"it doesn't exist, or the job may not see it, and the sink doesn't make topics")
		return
	}
	parts, copies := "the brokers' default of partitions", ""
	if how.partitions > 0 {
		parts = count(int(how.partitions), "partition")
	}
	if how.replication > 0 {
		copies = fmt.Sprintf(", %d copies each", how.replication)
	}
	if e.mayMake(ctx, name, how.partitions, how.replication, how.settings) {
		e.ok(subject, "it doesn't exist yet; the job makes it, with %s%s", parts, copies)
	}
}

// mayMake tries to make a topic, without making it.
func (e *exam) mayMake(ctx context.Context, name string, partitions int32, copies int16, settings map[string]*string) bool {
	resp, err := e.adm.ValidateCreateTopics(ctx, partitions, copies, settings, name)
	if err == nil {
		err = resp[name].Err
		if m := resp[name].ErrMessage; err != nil && m != "" {
			err = fmt.Errorf("%w (%s)", err, m)
		}
	}
	switch {
	case err == nil:
		return true
	case errors.Is(err, kerr.TopicAuthorizationFailed), errors.Is(err, kerr.ClusterAuthorizationFailed):
		e.problem("topic "+name, "create it beforehand, or allow it:\n"+e.allow("--operation Create --topic "+name), "it doesn't exist, and the job may not make it")
	default:
		e.problem("topic "+name, "create it beforehand, or change what CreateTopics says", "it doesn't exist, and can't be made: %v", err)
	}
	return false
}

// controlRights are what a job must be allowed on its control topic.
const controlRights = "--operation Create --operation Read --operation Write --operation Describe --operation DescribeConfigs --topic "

// examineControl looks at the control topic, which says what was committed.
func (e *exam) examineControl(ctx context.Context) {
	name := e.control()
	subject := "topic " + name
	t, err := e.topic(ctx, name)
	if err != nil {
		e.withheld(weir.LevelProblem, subject, "see the control topic", controlRights+name, err)
		return
	}
	if t.missing {
		if slices.ContainsFunc(e.Checkpoints, func(c weir.StoredCheckpoint) bool { return c.Standing == "committed" }) {
			e.problem(subject, "find out who deleted it; the job can only begin from nothing (--start-over)",
				"the control topic is gone, or the job may not see it, and with it what was committed: the state directory has checkpoints")
			return
		}
		if e.mayMake(ctx, name, 1, -1, nil) {
			e.ok(subject, "the control topic doesn't exist yet; the job makes it")
		}
		return
	}
	for _, op := range []kmsg.ACLOperation{kmsg.ACLOperationRead, kmsg.ACLOperationWrite} {
		if !t.may(op) {
			e.problem(subject, "allow it:\n"+e.allow(controlRights+name), "the job may not %s its control topic", strings.ToLower(op.String()))
		}
	}
	if n := len(t.Partitions); n != 1 {
		e.problem(subject, "let the job make it: stop the job, and see who made it with more", "the control topic has %d partitions, and must have one", n)
	}
	e.examineReplicas(t, weir.LevelProblem)
	if t.configsErr != nil {
		e.withheld(weir.LevelProblem, subject, "see the control topic's settings", controlRights+name, t.configsErr)
		return
	}
	if p := t.configs["cleanup.policy"]; p != "compact" {
		e.problem(subject, "set it:\n"+e.alter(name, "cleanup.policy=compact"), "cleanup.policy=%s: the control topic may lose what was committed last; it must be compact, and nothing else", p)
	}
	if n, ok := t.number("max.message.bytes"); ok && n < 16<<10 {
		e.problem(subject, "raise it:\n"+e.alter(name, "max.message.bytes=1048588"), "max.message.bytes=%d is too small for the job's own records", n)
	}
	if len(t.Partitions) == 1 && t.may(kmsg.ACLOperationRead) {
		e.examineLedger(ctx, &controlTopic{name: name, id: topicID(t.ID), leader: t.Partitions[0].Leader})
	}
}

// examineLedger compares what the control topic says was committed last with the
// state directory.
func (e *exam) examineLedger(ctx context.Context, t *controlTopic) {
	subject := "topic " + t.name
	o := &outputs{c: e.c, cl: e.cl, adm: e.adm, clock: sys.From(ctx).Clock}
	last, err := e.readLedger(ctx, o, t)
	if err != nil {
		e.problem(subject, "", "%s", e.plain("read the control topic", err))
		return
	}
	e.last = last
	const start = "start with the state directory that belongs to it, or give its results up and begin from nothing (--start-over)"
	own := last.own
	switch {
	case last.newest == nil, own == nil && e.StartOver:
	case own == nil && e.UUID == "":
		e.problem(subject, start, "it belongs to another run of the job (%s, checkpoint %q), and this one hasn't started yet", last.newest.UUID, last.newest.Checkpoint)
	case own == nil:
		e.problem(subject, start, "it has nothing of this run (%s), but of another one (%s, checkpoint %q)", e.UUID, last.newest.UUID, last.newest.Checkpoint)
	case own.Checkpoint == "":
		e.ok(subject, "it is claimed by this state directory, and nothing is committed yet")
	case e.stores(own.Checkpoint):
		e.ok(subject, "it says which checkpoint was committed last, and the state directory has that one")
	default:
		e.problem(subject, start, "it says that checkpoint %s was committed last, and the state directory doesn't have that one: it is a copy, or comes from a backup", own.Checkpoint)
	}
}

// ledgerTries is how often the control topic and the store are read, where they go
// on faster than that can be done.
const ledgerTries = 10

// readLedger reads the control topic and, where what it says doesn't fit the state
// directory, that one again, because a job that runs has gone on since it was read:
// a checkpoint is in the store before it is committed. It is over when they agree, or
// when they don't and nothing has changed behind the store's last reading.
func (e *exam) readLedger(ctx context.Context, o *outputs, t *controlTopic) (lastRecords, error) {
	last, err := o.lastControl(ctx, t, e.UUID)
	for range ledgerTries {
		if err != nil || e.agrees(last) || e.Refresh == nil {
			break
		}
		before, uuid := last, e.UUID
		if e.UUID, e.Checkpoints, err = e.Refresh(ctx); err != nil {
			return last, fmt.Errorf("read the state directory again: %w", err)
		}
		if e.UUID == uuid && e.agrees(last) {
			break
		}
		last, err = o.lastControl(ctx, t, e.UUID)
		if err == nil && e.UUID == uuid && before.at() == last.at() {
			break
		}
	}
	return last, err
}

// at tells what was read from what is read later.
func (l lastRecords) at() (at [2]int64) {
	for i, r := range []*controlRecord{l.own, l.newest} {
		at[i] = -1
		if r != nil {
			at[i] = r.offset
		}
	}
	return at
}

// agrees reports whether the control topic fits the state directory.
func (e *exam) agrees(last lastRecords) bool {
	if last.own == nil {
		return last.newest == nil
	}
	return last.own.Checkpoint == "" || e.stores(last.own.Checkpoint)
}

// stores reports whether the state directory has a checkpoint.
func (e *exam) stores(id string) bool {
	return slices.ContainsFunc(e.Checkpoints, func(c weir.StoredCheckpoint) bool { return c.ID.String() == id })
}

// examineIDs tries whether the job may use its transactional ids: it ends a
// transaction of a producer that there isn't.
func (e *exam) examineIDs(ctx context.Context) {
	var good []string
	for _, id := range e.ids() {
		req := kmsg.NewPtrEndTxnRequest()
		req.TransactionalID, req.ProducerID, req.ProducerEpoch = id, 1<<62, 0
		resp, err := req.RequestWith(ctx, e.cl)
		if err == nil {
			err = kerr.ErrorForCode(resp.ErrorCode)
		}
		subject := "transactional id " + id
		switch {
		case errors.Is(err, kerr.InvalidProducerIDMapping), errors.Is(err, kerr.InvalidProducerEpoch), errors.Is(err, kerr.ProducerFenced), errors.Is(err, kerr.InvalidTxnState):
			good = append(good, id)
		case errors.Is(err, kerr.TransactionalIDAuthorizationFailed):
			e.problem(subject, "allow it:\n"+e.allow("--operation Write --operation Describe --resource-pattern-type prefixed --transactional-id "+e.prefixed()+"-"), "the job may not use it")
		case err == nil:
			e.warn(subject, "", "the coordinator has ended a transaction that there can't be")
		default:
			e.unseen(subject, "try transactional id "+id, err)
		}
	}
	if len(good) == len(e.ids()) {
		e.ok("transactional ids", "the job may use %s", strings.Join(good, " and "))
	}
}

// ownPartitions are those in which the job's transactions can be open: of its
// control topic, its outputs, and where the offsets of its sources' groups are kept.
func (e *exam) ownPartitions(ctx context.Context, topics []string) (kadm.TopicsSet, error) {
	const offsets = "__consumer_offsets"
	set := kadm.TopicsSet{}
	for _, name := range append([]string{e.control()}, topics...) {
		meta, err := e.adm.Metadata(ctx, name)
		if err != nil {
			return nil, err
		}
		for p := range meta.Topics[name].Partitions {
			set.Add(name, p)
		}
	}
	meta, err := e.adm.Metadata(ctx, offsets)
	if err != nil || meta.Topics[offsets].Err != nil {
		return set, nil //nolint:nilerr // who may not see it looks at the rest
	}
	if n := int32(len(meta.Topics[offsets].Partitions)); n > 0 {
		for _, group := range append(slices.Clone(e.view.groups), e.prefixed()) {
			set.Add(offsets, homeOf(group, n))
		}
	}
	return set, nil
}
