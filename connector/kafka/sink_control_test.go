package kafka

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/connector/kafka/kafkatest"
)

func sampleRecord() *controlRecord {
	id := weir.CheckpointID{Slot: 7, Sum: [32]byte{1, 2}}
	return &controlRecord{Version: controlVersion, Job: "clicks", UUID: "run-1", Incarnation: 3, Nonce: "n", Number: 12, Checkpoint: id.String(), Parent: "",
		Epoch: 5, Sinks: map[string]string{"new": "", "out": id.String()}, Topics: map[string]string{"counts": "AAAAAAAAAAAAAAAAAAAAAA"},
		Producers: []producerState{{1, 2}, {3, 4}}, Cluster: "c", Topic: "t"}
}

// A control record is read as it was written, and its bytes are what formats.md says.
func TestControlRecord(t *testing.T) {
	r := sampleRecord()
	b, err := r.encode()
	check(t, err)
	sum := strings.Repeat("0", 60)
	want := `{"weir":1,"job":"clicks","uuid":"run-1","worker":0,"incarnation":3,"nonce":"n","number":12,"checkpoint":"7-0102` + sum + `","parent":"","epoch":5,` +
		`"sinks":{"new":"","out":"7-0102` + sum + `"},"topics":{"counts":"AAAAAAAAAAAAAAAAAAAAAA"},"producers":[{"id":1,"epoch":2},{"id":3,"epoch":4}],"cluster":"c","topic":"t"}`
	if string(b) != want {
		t.Errorf("got\n%s\nwant\n%s", b, want)
	}
	got, err := parseControl(controlKey("run-1"), b)
	check(t, err)
	if diff := cmp.Diff(r, got, cmp.AllowUnexported(controlRecord{}), cmpopts.IgnoreFields(controlRecord{}, "ids")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if len(got.ids) != 2 || !got.ids["new"].IsZero() || got.ids["out"].String() != r.Checkpoint {
		t.Errorf("the ledgers are %v", got.ids)
	}
}

// What isn't a control record of this version is refused, and says why.
func TestBadControlRecord(t *testing.T) {
	whole, err := sampleRecord().encode()
	check(t, err)
	replace := func(old, by string) string { return strings.Replace(string(whole), old, by, 1) }
	for want, c := range map[string][2]string{
		"isn't JSON":               {"run-1/0", "hello"},
		"has no version":           {"run-1/0", "{}"},
		"version 2":                {"run-1/0", replace(`"weir":1`, `"weir":2`)},
		"its key":                  {"run-2/0", string(whole)},
		"unknown":                  {"run-1/0", replace(`"job"`, `"jobs"`)},
		"which start of which run": {"run-1/0", replace(`"incarnation":3`, `"incarnation":0`)},
		"of which run":             {"run-1/0", replace(`"nonce":"n"`, `"nonce":""`)},
		"start of":                 {"run-1/0", replace(`"number":12`, `"number":-1`)},
		"sink out":                 {"run-1/0", replace(`"out":"7-`, `"out":"7x`)},
		"duplicate":                {"run-1/0", replace(`"parent":"",`, `"parent":"","parent":"",`)},
		"within \"/weir\"":         {"run-1/0", replace(`"weir":1`, `"weir":"1"`)},
	} {
		_, err := parseControl([]byte(c[0]), []byte(c[1]))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want an error with %q", c[1], err, want)
		}
	}
}

func FuzzParseControl(f *testing.F) {
	whole, err := sampleRecord().encode()
	check(f, err)
	f.Add(whole)
	f.Add([]byte(`{"weir":1}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := parseControl(controlKey("run-1"), b)
		if err != nil {
			return
		}
		again, err := r.encode()
		check(t, err)
		same, err := parseControl(controlKey(r.UUID), again)
		check(t, err)
		if diff := cmp.Diff(r, same, cmp.AllowUnexported(controlRecord{}), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("written again it is another one (-was +is):\n%s", diff)
		}
	})
}

// The last records are found behind whatever was committed and aborted since.
func TestLastControl(t *testing.T) {
	s := stage(t, 0)
	o, err := newOutputs(t.Context(), s.cluster(), []string{"out"}, true)
	check(t, err)
	defer o.shut()
	topic, err := o.findControl(t.Context(), s.control(), true)
	check(t, err)
	cl := kafkatest.Client(t, s.brokers, kgo.TransactionalID(s.job.Name), kgo.ProducerLinger(0))
	number := int64(0)
	write := func(how kgo.TransactionEndTry, uuid string, n int) {
		t.Helper()
		check(t, cl.BeginTransaction())
		for range n {
			r := sampleRecord()
			r.UUID, r.Number = uuid, number
			number++
			b, err := r.encode()
			check(t, err)
			check(t, cl.ProduceSync(t.Context(), &kgo.Record{Topic: topic.name, Key: controlKey(uuid), Value: b}).FirstErr())
		}
		for { // a client that has just learned of the topic may take the transaction for an empty one
			if leader, _, _ := cl.PartitionLeader(topic.name, 0); leader >= 0 {
				break
			}
		}
		check(t, cl.EndTransaction(t.Context(), how))
	}
	read := func() string {
		t.Helper()
		kafkatest.Settle(t, s.brokers, topic.name)
		last, err := o.lastControl(t.Context(), topic, "run-1")
		check(t, err)
		say := func(r *controlRecord) string {
			if r == nil {
				return "none"
			}
			return fmt.Sprintf("%s %d", r.UUID, r.Number)
		}
		return say(last.own) + ", " + say(last.newest)
	}
	var got, want []string
	step := func(expect string) { t.Helper(); got, want = append(got, read()), append(want, expect) }
	step("none, none")
	write(kgo.TryAbort, "run-1", 3)
	step("none, none")
	write(kgo.TryCommit, "run-1", 1) // number 3
	step("run-1 3, run-1 3")
	for range 20 {
		write(kgo.TryAbort, "run-1", 2) // to 43
	}
	step("run-1 3, run-1 3")
	write(kgo.TryCommit, "run-2", 30) // to 73
	step("run-1 3, run-2 73")
	write(kgo.TryAbort, "run-3", 300) // to 373
	step("run-1 3, run-2 73")
	write(kgo.TryCommit, "run-1", 1)
	step("run-1 374, run-1 374")
	equal(t, "last records", got, want...)
	end := kafkatest.ProduceIn(t, s.brokers, s.job.Name+"-other", &kgo.Record{Topic: topic.name, Key: []byte("k"), Value: []byte("not to be seen")})
	last, err := o.lastControl(t.Context(), topic, "run-1")
	check(t, err)
	if last.own.Number != 374 {
		t.Errorf("beside an open transaction number %d is found, want 374", last.own.Number)
	}
	end(kgo.TryAbort)
}
