package kafka

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/codec"
	"github.com/weirstream/weir/connector/kafka/kafkatest"
)

// patient is a job from one topic to another that is examined.
type patient struct {
	t       *testing.T
	brokers []string
	name    string
	in, out string
	cluster []ClusterOption
	source  []SourceOption
	sink    []SinkOption
	opts    []weir.RunOption
}

// newPatient has an input topic with a few messages in two partitions.
func newPatient(t *testing.T, configs ...string) *patient {
	t.Helper()
	brokers := kafkatest.Brokers(t)
	p := &patient{t: t, brokers: brokers, name: kafkatest.Name(t), out: kafkatest.Name(t) + ".out", opts: []weir.RunOption{weir.StateDir(t.TempDir())}}
	p.in = kafkatest.Topic(t, brokers, 2, append([]string{"retention.ms=604800000"}, configs...)...)
	p.produce(0, "a", "b", "c")
	p.produce(1, "d")
	return p
}

func (p *patient) produce(partition int32, values ...string) {
	p.t.Helper()
	for _, v := range values {
		kafkatest.Produce(p.t, p.brokers, &kgo.Record{Topic: p.in, Partition: partition, Value: []byte(v)})
	}
}

func (p *patient) job() *weir.Job {
	c := NewCluster(p.brokers, p.cluster...)
	job := weir.NewJob(p.name)
	job.From("in", Source(c, Named(p.in), codec.String(), p.source...)).
		To("out", Sink(c, p.out, func(s *string, m *Message) error { m.Value = append(m.Value, *s...); return nil }, p.sink...))
	return job
}

// makes lets the sink make its topic.
func (p *patient) makes() *patient {
	p.sink = append(p.sink, CreateTopics(2, 0))
	return p
}

// run runs the job to the end of its input, from where it stands.
func (p *patient) run() {
	p.t.Helper()
	before := p.source
	p.source = append(p.source, StopAtEnd())
	defer func() { p.source = before }()
	if err := p.job().Run(p.t.Context(), append(p.opts, weir.Interval(50*time.Millisecond))...); err != nil {
		p.t.Fatalf("run: %v", err)
	}
}

func (p *patient) examine(opts ...weir.RunOption) diagnosis {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), time.Minute)
	defer cancel()
	found, err := p.job().Doctor(ctx, append(p.opts, opts...)...)
	if err != nil {
		p.t.Fatalf("examine: %v", err)
	}
	return found
}

type diagnosis []weir.Finding

func (d diagnosis) String() string {
	var b strings.Builder
	for _, f := range d {
		fmt.Fprintf(&b, "  %s, %s: %s: %s\n", f.Level, f.Of, f.Subject, f.Text)
		for l := range strings.Lines(f.Fix) {
			fmt.Fprintf(&b, "      %s\n", strings.TrimRight(l, "\n"))
		}
	}
	return b.String()
}

// find returns what was found with that level, that begins so, and holds all that.
func (d diagnosis) find(level weir.Level, subject string, text ...string) *weir.Finding {
	for i, f := range d {
		all := f.Level == level && strings.HasPrefix(f.Subject, subject)
		for _, x := range text {
			all = all && strings.Contains(f.Text, x)
		}
		if all {
			return &d[i]
		}
	}
	return nil
}

// want fails where that wasn't found.
func (d diagnosis) want(t *testing.T, level weir.Level, subject string, text ...string) weir.Finding {
	t.Helper()
	if f := d.find(level, subject, text...); f != nil {
		return *f
	}
	t.Errorf("no %s about %q with %q was found, but:\n%s", level, subject, text, d)
	return weir.Finding{}
}

// healthy fails where there is a problem.
func (d diagnosis) healthy(t *testing.T) {
	t.Helper()
	if d.find(weir.LevelProblem, "") != nil {
		t.Errorf("problems were found:\n%s", d)
	}
}

func TestDoctorOfAHealthyJob(t *testing.T) {
	p := newPatient(t).makes()
	before := p.examine()
	before.healthy(t)
	before.want(t, weir.LevelOK, "topic "+p.out, "the job makes it, with 2 partitions")
	before.want(t, weir.LevelOK, "topic "+p.name+".ckpt", "the job makes it")
	before.want(t, weir.LevelOK, "transaction.version", "finalized at 2")
	before.want(t, weir.LevelOK, "transactional ids", p.name+"-0-a", p.name+"-0-b")
	before.want(t, weir.LevelOK, "group "+p.name)
	p.run()
	p.produce(0, "e")
	d := p.examine()
	d.healthy(t)
	d.want(t, weir.LevelOK, "topic "+p.in, "positions are there, in 2 partitions")
	d.want(t, weir.LevelOK, p.in+"/0", "stays until")
	d.want(t, weir.LevelOK, "open transactions", "none")
	clusters := 0
	for _, f := range d {
		if strings.HasPrefix(f.Subject, "cluster ") && strings.Contains(f.Text, "answer") {
			clusters++
		}
	}
	if clusters != 1 {
		t.Errorf("the cluster was looked at %d times:\n%s", clusters, d)
	}
	p.run() // the examination is in nobody's way
	if got := kafkatest.ReadCommitted(t, p.brokers, p.out); len(got) != 5 {
		t.Errorf("%d messages were written, want 5", len(got))
	}
}

// The ids of producers are as they were: a transaction that ends after the
// examination is committed.
func TestDoctorDisturbsNobody(t *testing.T) {
	p := newPatient(t).makes()
	p.run()
	id := p.name + "-0-a"
	cl := kafkatest.Client(t, p.brokers, kgo.TransactionalID(id))
	if err := cl.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: p.out, Value: []byte("x")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	d := p.examine()
	d.healthy(t)
	d.want(t, weir.LevelOK, "open transaction", id, p.out)
	if err := cl.EndTransaction(t.Context(), kgo.TryCommit); err != nil {
		t.Errorf("a transaction that was open during the examination: %v", err)
	}
}

func TestDoctorOfAnUnreachableCluster(t *testing.T) {
	p := &patient{t: t, brokers: []string{"127.0.0.1:1"}, name: "j", in: "in", out: "out", opts: []weir.RunOption{weir.StateDir(t.TempDir())}}
	d := p.examine()
	d.want(t, weir.LevelProblem, "cluster 127.0.0.1:1", "connection refused")
	if n := strings.Count(d.String(), "connection refused"); n != 1 {
		t.Errorf("it is said %d times:\n%s", n, d)
	}
}

func TestDoctorOfMissingTopics(t *testing.T) {
	p := newPatient(t)
	in := p.in
	p.in = kafkatest.Name(t) + ".nowhere"
	d := p.examine()
	if f := d.want(t, weir.LevelProblem, "topic "+p.in, "doesn't exist"); !strings.Contains(f.Fix, "--create --topic "+p.in) {
		t.Errorf("the command isn't given: %s", f.Fix)
	}
	d.want(t, weir.LevelProblem, "topic "+p.out, "doesn't exist", "doesn't make topics")
	p.in = in
	p.sink = []SinkOption{CreateTopics(1, 99)}
	p.examine().want(t, weir.LevelProblem, "topic "+p.out, "can't be made")
}

func TestDoctorOfTheControlTopic(t *testing.T) {
	p := newPatient(t).makes()
	kafkatest.CreateTopic(t, p.brokers, p.name+".ckpt", 2, "cleanup.policy=compact,delete", "max.message.bytes=2000")
	d := p.examine()
	d.want(t, weir.LevelProblem, "topic "+p.name+".ckpt", "2 partitions, and must have one")
	d.want(t, weir.LevelProblem, "topic "+p.name+".ckpt", "cleanup.policy=")
	d.want(t, weir.LevelProblem, "topic "+p.name+".ckpt", "max.message.bytes=2000")
}

func TestDoctorOfAnotherRunsLedger(t *testing.T) {
	p := newPatient(t).makes()
	mine := filepath.Join(t.TempDir(), "mine")
	p.opts = []weir.RunOption{weir.StateDir(mine)}
	p.run()
	p.examine().want(t, weir.LevelOK, "topic "+p.name+".ckpt", "the state directory has that one")
	backup := filepath.Join(t.TempDir(), "backup")
	if err := os.CopyFS(backup, os.DirFS(mine)); err != nil {
		t.Fatal(err)
	}
	p.produce(0, "e")
	p.run()
	p.opts = []weir.RunOption{weir.StateDir(backup)}
	p.examine().want(t, weir.LevelProblem, "topic "+p.name+".ckpt", "it is a copy, or comes from a backup")
	p.opts = []weir.RunOption{weir.StateDir(filepath.Join(t.TempDir(), "new"))}
	p.examine().want(t, weir.LevelProblem, "topic "+p.name+".ckpt", "belongs to another run")
	p.examine(weir.StartOver()).healthy(t)
}

func TestDoctorOfALostControlTopic(t *testing.T) {
	p := newPatient(t).makes()
	p.run()
	p.produce(0, "e")
	p.run()
	p.delete(p.name + ".ckpt")
	p.examine().want(t, weir.LevelProblem, "topic "+p.name+".ckpt", "is gone")
}

func (p *patient) delete(topic string) {
	p.t.Helper()
	adm := kadm.NewClient(kafkatest.Client(p.t, p.brokers))
	if _, err := adm.DeleteTopic(p.t.Context(), topic); err != nil {
		p.t.Fatal(err)
	}
	for {
		all, err := adm.ListTopics(p.t.Context(), topic)
		if err != nil {
			p.t.Fatal(err)
		}
		if !all.Has(topic) {
			return
		}
	}
}

func TestDoctorOfPositionsThatAreGone(t *testing.T) {
	p := newPatient(t).makes()
	p.run()
	p.produce(0, "e", "f", "g")
	adm := kadm.NewClient(kafkatest.Client(t, p.brokers))
	if _, err := adm.DeleteRecords(t.Context(), kadm.Offsets{p.in: {0: {Topic: p.in, Partition: 0, At: 5}}}); err != nil {
		t.Fatal(err)
	}
	d := p.examine()
	if f := d.want(t, weir.LevelProblem, p.in+"/0", "2 records are gone", "offset 3", "begins at 5"); !strings.Contains(f.Fix, "--start-over") {
		t.Errorf("what to do: %s", f.Fix)
	}
	p.source = []SourceOption{AcceptLoss()}
	p.examine().want(t, weir.LevelWarning, p.in+"/0", "2 records are gone")
	p.source = nil

	p.delete(p.in)
	d = p.examine()
	if f := d.want(t, weir.LevelProblem, "topic "+p.in, "was deleted", "2 partitions"); !strings.Contains(f.Fix, "--partitions 2") || !strings.Contains(f.Fix, "--start-over") {
		t.Errorf("what to do: %s", f.Fix)
	}
	kafkatest.CreateTopic(t, p.brokers, p.in, 1)
	d = p.examine()
	d.want(t, weir.LevelProblem, p.in+"/0", "deleted and made again")
	d.want(t, weir.LevelProblem, p.in+"/1", "no such partition any more")
}

func TestDoctorOfRetention(t *testing.T) {
	p := newPatient(t, "retention.ms=86400000").makes()
	d := p.examine(weir.DowntimeBudget(48 * time.Hour))
	if f := d.want(t, weir.LevelProblem, "topic "+p.in, "retention.ms=86400000 (24 h)", "2 days finds a gap"); !strings.Contains(f.Fix, "retention.ms=345600000") {
		t.Errorf("the command isn't given: %s", f.Fix)
	}
	d = p.examine(weir.DowntimeBudget(time.Hour))
	d.healthy(t)
	d.want(t, weir.LevelOK, "topic "+p.in, "kept for 24 h")
	p.run()
	kafkatest.Produce(t, p.brokers, &kgo.Record{Topic: p.in, Partition: 1, Value: []byte("old"), Timestamp: time.Now().Add(-22 * time.Hour)})
	d = p.examine(weir.DowntimeBudget(3 * time.Hour))
	d.healthy(t)
	d.want(t, weir.LevelWarning, p.in+"/1", "stands at offset 1", "may be deleted from")
	p.examine(weir.DowntimeBudget(time.Hour)).want(t, weir.LevelOK, p.in+"/1", "stays until")
}

func TestDoctorOfRetentionBySize(t *testing.T) {
	p := newPatient(t).makes()
	p.in = kafkatest.Topic(t, p.brokers, 1, "retention.ms=-1", "retention.bytes=1000000")
	var noise [100_000]byte // that no codec makes smaller
	rand.NewChaCha8([32]byte{1}).Read(noise[:])
	kafkatest.Produce(t, p.brokers, &kgo.Record{Topic: p.in, Value: []byte("first"), Timestamp: time.Now().Add(-10 * time.Minute)})
	kafkatest.Produce(t, p.brokers, &kgo.Record{Topic: p.in, Value: noise[:]}) // 10 KB a minute
	if f := p.examine(weir.DowntimeBudget(3*time.Hour)).want(t, weir.LevelProblem, "topic "+p.in, "retention.bytes=1000000 holds about 1h4", "finds a gap"); !strings.Contains(f.Fix, "retention.bytes=3") {
		t.Errorf("the command isn't given: %s", f.Fix)
	}
	d := p.examine(weir.DowntimeBudget(time.Hour))
	d.healthy(t)
	d.want(t, weir.LevelOK, "topic "+p.in, "retention.bytes=1000000 holds about 1h4")
}

func TestDoctorOfCleanedInput(t *testing.T) {
	p := newPatient(t).makes()
	p.in = kafkatest.Topic(t, p.brokers, 1, "cleanup.policy=compact", "message.timestamp.type=LogAppendTime")
	d := p.examine()
	d.want(t, weir.LevelWarning, "topic "+p.in, "cleanup.policy=compact")
	if d.find(weir.LevelWarning, "topic "+p.in, "LogAppendTime") != nil {
		t.Errorf("a job that doesn't look at timestamps is warned of them:\n%s", d)
	}
	p.source = []SourceOption{Require(Timestamp)}
	p.examine().want(t, weir.LevelWarning, "topic "+p.in, "LogAppendTime")
}

func TestDoctorOfTimeouts(t *testing.T) {
	p := newPatient(t).makes()
	p.sink = append(p.sink, TransactionTimeout(16*time.Minute))
	p.examine().want(t, weir.LevelProblem, "transaction timeout", "allow 15m0s at most")
	p.sink[1] = TransactionTimeout(2 * time.Second)
	p.examine(weir.Interval(time.Second)).want(t, weir.LevelWarning, "transaction timeout", "2s, for epochs of 1s")
	p.examine(weir.Interval(5*time.Second)).want(t, weir.LevelWarning, "transaction timeout", "more often than the 5s")
	p.examine(weir.Interval(0)).want(t, weir.LevelOK, "transaction timeout", "no checkpoint by time")
	p.examine(weir.DowntimeBudget(8*24*time.Hour)).want(t, weir.LevelWarning, "transactional.id.expiration.ms", "7 days")
}

func TestDoctorOfAnOldTransactionVersion(t *testing.T) {
	fake := kafkatest.NewFake(t, kfake.MaxVersions(kversion.V3_9_0()))
	p := &patient{t: t, brokers: fake.ListenAddrs(), name: "j", in: "in", out: "out", opts: []weir.RunOption{weir.StateDir(t.TempDir())}}
	kafkatest.CreateTopic(t, p.brokers, "in", 1)
	p.makes()
	if f := p.examine().want(t, weir.LevelProblem, "transaction.version"); !strings.Contains(f.Fix, "kafka-features.sh") {
		t.Errorf("what to do: %s", f.Fix)
	}
	p.sink = append(p.sink, AtLeastOnce())
	p.examine().healthy(t) // it needs none
}

func TestDoctorOfSomebodyElsesTransaction(t *testing.T) {
	p := newPatient(t).makes()
	other := kafkatest.Name(t)
	end := kafkatest.ProduceIn(t, p.brokers, other, &kgo.Record{Topic: p.in, Partition: 1, Value: []byte("x")})
	d := p.examine()
	d.healthy(t)
	d.want(t, weir.LevelOK, "open transaction", other, p.in+"/1")
	p.source = []SourceOption{ReadUncommitted()}
	if d := p.examine(); d.find(weir.LevelOK, "open transaction", other) != nil {
		t.Errorf("who reads what isn't committed is told about transactions:\n%s", d)
	}
	end(kgo.TryCommit)
}

func TestDoctorOfAGroupThatIsInUse(t *testing.T) {
	p := newPatient(t).makes()
	cl := kafkatest.Client(t, p.brokers, kgo.ConsumerGroup(p.name), kgo.ConsumeTopics(p.in))
	for joined := false; !joined; {
		fetched := cl.PollFetches(t.Context())
		joined = fetched.NumRecords() > 0
	}
	d := p.examine()
	d.healthy(t)
	d.want(t, weir.LevelWarning, "group "+p.name, "1 member")
	p.run() // as the level says
}

// grant is what the user of the job may do.
func grant(resource kmsg.ACLResourceType, name string, pattern kmsg.ACLResourcePatternType, ops ...kmsg.ACLOperation) (out []kfake.ACL) {
	for _, op := range ops {
		out = append(out, kfake.ACL{Resource: resource, Name: name, Pattern: pattern, Operation: op, Allow: true})
	}
	return out
}

func TestDoctorOfRights(t *testing.T) {
	const literal, prefixed = kmsg.ACLResourcePatternTypeLiteral, kmsg.ACLResourcePatternTypePrefixed
	topics := func(name string, ops ...kmsg.ACLOperation) []kfake.ACL {
		return grant(kmsg.ACLResourceTypeTopic, name, literal, ops...)
	}
	// What docs/kafka.md says that a job needs.
	all := append(topics("in", kmsg.ACLOperationRead, kmsg.ACLOperationDescribe, kmsg.ACLOperationDescribeConfigs),
		topics("out", kmsg.ACLOperationWrite, kmsg.ACLOperationRead, kmsg.ACLOperationDescribe, kmsg.ACLOperationDescribeConfigs)...)
	all = append(all, topics("j.ckpt", kmsg.ACLOperationRead, kmsg.ACLOperationWrite, kmsg.ACLOperationCreate, kmsg.ACLOperationDescribe, kmsg.ACLOperationDescribeConfigs)...)
	all = append(all, grant(kmsg.ACLResourceTypeTransactionalId, "j-", prefixed, kmsg.ACLOperationWrite, kmsg.ACLOperationDescribe)...)
	all = append(all, grant(kmsg.ACLResourceTypeGroup, "j", literal, kmsg.ACLOperationRead)...)
	without := func(resource kmsg.ACLResourceType, name string, ops ...kmsg.ACLOperation) (rest []kfake.ACL) {
		for _, a := range all {
			if a.Resource != resource || a.Name != name || !slices.Contains(ops, a.Operation) {
				rest = append(rest, a)
			}
		}
		if len(rest) != len(all)-len(ops) {
			t.Fatalf("%v on %s aren't among what is granted", ops, name)
		}
		return rest
	}
	for name, c := range map[string]struct {
		acls    []kfake.ACL
		subject string // "": there is no problem
		fix     string
	}{
		"all that is needed":        {all, "", ""},
		"no reading of the input":   {without(kmsg.ACLResourceTypeTopic, "in", kmsg.ACLOperationRead), "topic in", "--operation Read --operation Describe --operation DescribeConfigs --topic in"},
		"no sight of the input":     {without(kmsg.ACLResourceTypeTopic, "in", kmsg.ACLOperationDescribe, kmsg.ACLOperationRead), "topic in", "--topic in"},
		"no reading of the output":  {without(kmsg.ACLResourceTypeTopic, "out", kmsg.ACLOperationRead), "topic out", "--operation Write --operation Read"},
		"no settings of the output": {without(kmsg.ACLResourceTypeTopic, "out", kmsg.ACLOperationDescribeConfigs), "topic out", "--operation DescribeConfigs --topic out"},
		"no writing":                {without(kmsg.ACLResourceTypeTopic, "out", kmsg.ACLOperationWrite), "topic out", "--operation Write --operation Read --operation Describe --operation DescribeConfigs --topic out"},
		"no control records":        {without(kmsg.ACLResourceTypeTopic, "j.ckpt", kmsg.ACLOperationCreate), "topic j.ckpt", "--operation Create"},
		"no transactions":           {without(kmsg.ACLResourceTypeTransactionalId, "j-", kmsg.ACLOperationWrite), "transactional id j-0-a", "--transactional-id j-"},
		"no group":                  {without(kmsg.ACLResourceTypeGroup, "j", kmsg.ACLOperationRead), "group j", "--operation Read --group j"},
	} {
		t.Run(name, func(t *testing.T) {
			fake := kafkatest.NewFake(t, kfake.EnableSASL(), kfake.EnableACLs(), kfake.Superuser(saslPlain, "root", canary),
				kfake.User(saslPlain, "ada", canary, c.acls...), kfake.SeedTopics(2, "in", "out"))
			p := &patient{t: t, brokers: fake.ListenAddrs(), name: "j", in: "in", out: "out", opts: []weir.RunOption{weir.StateDir(t.TempDir())},
				cluster: []ClusterOption{SASLPlain("ada", SecretText(canary))}}
			d := p.examine()
			if strings.Contains(d.String(), canary) {
				t.Errorf("the password is in what was found")
			}
			if c.subject == "" {
				d.healthy(t)
				return
			}
			if f := d.want(t, weir.LevelProblem, c.subject); !strings.Contains(f.Fix, c.fix) || !strings.Contains(f.Fix, "User:ada") {
				t.Errorf("the command isn't given: %s", f.Fix)
			}
		})
	}
}

func TestDoctorOfALogin(t *testing.T) {
	fake := kafkatest.NewFake(t, kfake.EnableSASL(), kfake.Superuser(saslPlain, "ada", canary))
	for name, c := range map[string]struct {
		opts []ClusterOption
		says string
	}{
		"the wrong password": {[]ClusterOption{SASLPlain("ada", SecretText("not-it"))}, "reach the brokers"},
		"the wrong settings": {[]ClusterOption{SASLPlain("", SecretText("not-it"))}, "needs a user"},
	} { // kfake doesn't say why it refuses a login, it hangs up
		t.Run(name, func(t *testing.T) {
			p := &patient{t: t, brokers: fake.ListenAddrs(), name: "j", in: "in", out: "out", opts: []weir.RunOption{weir.StateDir(t.TempDir())}, cluster: c.opts}
			p.examine().want(t, weir.LevelProblem, "cluster", c.says)
		})
	}
}
