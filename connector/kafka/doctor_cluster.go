package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirstream/weir"
)

// view is what an examination has seen of a cluster, kept for those that follow in
// the same call of Doctor.
type view struct {
	away       bool // nothing answered
	id         string
	bootstrap  string // an address that answered
	brokers    []int32
	features   map[string]int16 // finalized
	groups     []string         // of the sources on it
	sinksSeen  bool             // what only transactional sinks need was said
	configsErr error
	configs    map[string]map[string][]int32 // by name and value: which brokers have it
}

// transactionFeature is what the guarantee rests on: from level 2 on each
// transaction has an epoch of its own.
const transactionFeature, transactionLevel = "transaction.version", 2

// look reaches the cluster and each of its brokers.
func (e *exam) look(ctx context.Context, v *view) {
	subject := "cluster " + e.c.String()
	meta, err := e.adm.BrokerMetadata(ctx)
	if err != nil {
		v.away = true
		fix := "start the brokers, correct their addresses, or mend the login"
		if errors.Is(err, io.EOF) {
			fix = "the brokers hang up: does that port want TLS (--tls), another login (--sasl), or none? Their log tells"
		}
		e.problem(subject, fix, "%s", e.plain("reach the brokers", err))
		return
	}
	v.id = meta.Cluster
	var names []string
	versions := map[string][]string{}
	for _, b := range slices.SortedFunc(slices.Values(meta.Brokers), func(a, b kadm.BrokerDetail) int { return cmp.Compare(a.NodeID, b.NodeID) }) {
		at := fmt.Sprintf("%s:%d", b.Host, b.Port)
		resp, err := e.reach(ctx, b.NodeID)
		if err != nil {
			e.problem(fmt.Sprintf("broker %d", b.NodeID), fmt.Sprintf("start it, or set its advertised.listeners to an address that this machine can reach; it says that it is %s", at),
				"%s", e.plain("reach "+at, err))
			continue
		}
		v.brokers, names = append(v.brokers, b.NodeID), append(names, at)
		v.bootstrap = cmp.Or(v.bootstrap, at)
		guess := versionOf(resp)
		versions[guess] = append(versions[guess], at)
		for _, f := range resp.FinalizedFeatures {
			v.features[f.Name] = f.MaxVersionLevel
		}
	}
	if len(v.brokers) == 0 {
		v.away = true
		return
	}
	kinds := slices.Sorted(maps.Keys(versions))
	answer := count(len(names), "broker") + " answer"
	if len(names) == 1 {
		answer += "s"
	}
	e.ok(subject, "%s: %s; Kafka %s; cluster id %s", answer, some(names), strings.Join(kinds, " and "), v.id)
	if len(meta.Brokers) == 1 {
		e.warn(subject, "", "one broker has one copy of everything: a broken disk loses it, which only development can take")
	}
	if len(kinds) > 1 {
		e.warn(subject, "finish the upgrade: the job uses what all brokers can", "the brokers have different versions: %s", strings.Join(kinds, ", "))
	}
	e.lookAtConfigs(ctx, v)
}

// reach asks one broker which requests it takes, which shows that it is there and
// lets the job in.
func (e *exam) reach(ctx context.Context, broker int32) (*kmsg.ApiVersionsResponse, error) {
	req := kmsg.NewPtrApiVersionsRequest()
	req.ClientSoftwareName, req.ClientSoftwareVersion = "weir", "doctor"
	raw, err := e.cl.Broker(int(broker)).Request(ctx, req)
	if err != nil {
		return nil, err
	}
	resp := raw.(*kmsg.ApiVersionsResponse)
	return resp, kerr.ErrorForCode(resp.ErrorCode)
}

// lookAtConfigs reads the brokers' settings.
func (e *exam) lookAtConfigs(ctx context.Context, v *view) {
	all, err := e.adm.DescribeBrokerConfigs(ctx, v.brokers...)
	for _, r := range all {
		err = errors.Join(err, r.Err)
		id, _ := strconv.ParseInt(r.Name, 10, 32)
		for _, c := range r.Configs {
			if v.configs[c.Key] == nil {
				v.configs[c.Key] = map[string][]int32{}
			}
			value := c.MaybeValue()
			v.configs[c.Key][value] = append(v.configs[c.Key][value], int32(id))
		}
	}
	if err != nil {
		v.configsErr = err
		e.withheld(weir.LevelWarning, "brokers' settings", "see them, so that limits aren't compared", "--operation DescribeConfigs --cluster", err)
	}
}

// lowest is a number in the brokers' settings, the lowest where they differ.
func (v *view) lowest(name string) (n int64, ok bool) {
	for value := range v.configs[name] {
		if x, err := strconv.ParseInt(value, 10, 64); err == nil && (!ok || x < n) {
			n, ok = x, true
		}
	}
	return n, ok
}

// millis is a time in the brokers' settings, the shortest where they differ.
func (v *view) millis(name string) (time.Duration, bool) {
	n, ok := v.lowest(name)
	return time.Duration(n) * time.Millisecond, ok
}

// versionOf guesses a broker's version from the requests that it takes.
func versionOf(resp *kmsg.ApiVersionsResponse) string {
	return strings.TrimPrefix(guessVersion(resp), "v")
}

// examineTransactions looks at what of the cluster transactions need. Several
// participants need the same, so that it is done once.
func (e *exam) examineTransactions(ctx context.Context, timeout time.Duration) {
	e.examineTimeout(timeout)
	if e.view.sinksSeen {
		return
	}
	e.view.sinksSeen = true
	e.examineFeature()
	const txns, offsets = "__transaction_state", "__consumer_offsets"
	e.examineInternal(ctx, txns, "transaction.state.log.replication.factor", "transaction.state.log.min.isr")
	e.examineInternal(ctx, offsets, "offsets.topic.replication.factor", "")
	name := "transactional.id.expiration.ms"
	if d, ok := e.view.millis(name); ok && d < e.Downtime {
		e.warn(name, fmt.Sprintf("raise it above %s on every broker, or accept that:\n  %s=%d", days(e.Downtime), name, (2*e.Downtime).Milliseconds()),
			"%s: a job that stands still for longer gets new producer ids, and what the coordinator recorded about its last transactions is gone", days(d))
	} else if ok {
		e.ok(name, "%s, longer than the job may stand still (%s)", days(d), days(e.Downtime))
	}
}

func (e *exam) examineFeature() {
	fix := fmt.Sprintf("finalize it; it needs brokers from 4.0 on:\n  kafka-features.sh --bootstrap-server %s upgrade --feature %s=%d", e.bootstrap(), transactionFeature, transactionLevel)
	switch level, ok := e.view.features[transactionFeature]; {
	case !ok:
		e.problem(transactionFeature, fix, "the cluster doesn't tell that it is finalized: below %d a delayed answer can end the wrong transaction, and a transactional sink refuses to run", transactionLevel)
	case level < transactionLevel:
		e.problem(transactionFeature, fix, "finalized at %d, whatever the brokers could do: below %d a delayed answer can end the wrong transaction, and a transactional sink refuses to run", level, transactionLevel)
	default:
		e.ok(transactionFeature, "finalized at %d", level)
	}
}

// examineTimeout compares the transaction timeout with what the brokers allow and
// with how long an epoch takes.
func (e *exam) examineTimeout(timeout time.Duration) {
	const name, subject = "transaction.max.timeout.ms", "transaction timeout"
	if most, ok := e.view.millis(name); ok && timeout > most {
		e.problem(subject, fmt.Sprintf("give the sink a shorter TransactionTimeout, or raise the brokers' limit:\n  %s=%d", name, timeout.Milliseconds()),
			"%s, but the brokers allow %s at most (%s)", days(timeout), days(most), name)
		return
	}
	switch {
	case e.Interval == 0:
		e.ok(subject, "%s; there is no checkpoint by time, so one is taken before the timeout", days(timeout))
	case timeout/2 < e.Interval:
		e.warn(subject, fmt.Sprintf("take checkpoints more often, or give the sink a TransactionTimeout of %s", days(3*e.Interval)),
			"%s: a checkpoint is taken when half of it has passed, and so more often than the %s that are asked for", days(timeout), days(e.Interval))
	case timeout < 3*e.Interval:
		e.warn(subject, fmt.Sprintf("take checkpoints more often, or give the sink a TransactionTimeout of %s", days(max(3*e.Interval, 10*time.Second))),
			"%s, for epochs of %s: a commit that takes long is aborted by the brokers, and its epoch is done again", days(timeout), days(e.Interval))
	default:
		e.ok(subject, "%s, for epochs of %s; a worker that dies holds readers back for at most so long", days(timeout), days(e.Interval))
	}
}

// examineInternal looks at a topic of Kafka's own, which is made when it is first
// needed.
func (e *exam) examineInternal(ctx context.Context, name, factor, minISR string) {
	t, err := e.topic(ctx, name)
	if err != nil {
		e.withheld(weir.LevelWarning, "topic "+name, "see it, so that its copies aren't looked at", "--operation Describe --operation DescribeConfigs --topic "+name, err)
		return
	}
	if t.missing {
		want, ok := e.view.lowest(factor)
		if ok && int(want) > len(e.view.brokers) {
			e.problem("topic "+name, fmt.Sprintf("add brokers, or set on every broker:\n  %s=%d", factor, len(e.view.brokers)),
				"it doesn't exist yet, and can't be made: %s is %d, and there are %s", factor, want, count(len(e.view.brokers), "broker"))
			return
		}
		e.ok("topic "+name, "it doesn't exist yet, and is made when it is first needed")
		return
	}
	if n, ok := e.view.lowest(minISR); ok && minISR != "" {
		t.setMinISR(n)
	}
	e.examineReplicas(t, weir.LevelWarning)
}
