package kafka

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirstream/weir"
)

func TestStandingOfATransaction(t *testing.T) {
	for _, c := range []struct {
		state string
		epoch int16 // of the coordinator; the partition has 7 open
		want  standing
	}{
		{"Ongoing", 7, running}, {"PrepareCommit", 8, ending}, {"PrepareAbort", 8, ending}, {"PrepareEpochFence", 8, ending},
		{"CompleteCommit", 8, hanging}, {"CompleteAbort", 8, hanging}, {"Ongoing", 8, hanging}, {"Ongoing", 9, hanging},
		{"Empty", 9, hanging}, {"PrepareAbort", 9, ending}, {"PrepareAbort", 10, hanging}, {"PrepareCommit", 6, hanging}, {"CompleteCommit", 7, hanging}, {"Dead", 8, hanging}, {"", 0, hanging},
	} {
		if got := standingOf(7, c.state, c.epoch); got != c.want {
			t.Errorf("%s with epoch %d: %d, want %d", c.state, c.epoch, got, c.want)
		}
	}
}

// The places are those that a broker of Kafka 4.4 with 4 and 50 partitions has
// chosen; Java's hash of the second name is the smallest integer.
func TestWhereKafkaKeepsAName(t *testing.T) {
	for _, c := range []struct {
		name       string
		partitions int32
		want       int32
	}{{"xe879fd-2-0-a", 4, 3}, {"polygenelubricants", 50, 0}, {"xbd0694-3-0-a", 4, 0}, {"hello", 50, 22}, {"", 50, 0}} {
		if got := homeOf(c.name, c.partitions); got != c.want {
			t.Errorf("%q among %d: %d, want %d", c.name, c.partitions, got, c.want)
		}
	}
}

// hung is a transaction of producer 5 and epoch 7 that is open in two partitions.
func hung() *openTxn {
	return &openTxn{producer: 5, epoch: 7, owner: "job-0-a", standing: hanging, parts: []openPart{{"job.ckpt", 0, 10, 0}, {"out", 3, 20, 0}}}
}

var hungIn = map[string][]int32{"job.ckpt": {0}, "out": {1, 3}}

func entry(producer int64, epoch int16, state kmsg.TransactionState) transition {
	return transition{id: "job-0-a", offset: 100, producer: producer, epoch: epoch, state: state, parts: hungIn, tv2: true}
}

func TestEvidenceOfTheCoordinatorsLog(t *testing.T) {
	other := entry(5, 8, prepareCommit)
	other.parts = map[string][]int32{"job.ckpt": {0}, "out": {1}}
	old := entry(5, 8, prepareCommit)
	old.tv2 = false
	for name, c := range map[string]struct {
		log     []transition
		want    string // as, or what speaks against it
		against bool
	}{
		"nothing":                      {nil, "", false},
		"committed":                    {[]transition{entry(5, 7, 1), entry(5, 8, prepareCommit), entry(5, 8, completeCommit)}, asCommit, false},
		"aborted":                      {[]transition{entry(5, 7, 1), entry(5, 8, prepareAbort), entry(5, 8, completeAbort)}, asAbort, false},
		"its end alone is left":        {[]transition{entry(5, 8, completeCommit)}, asCommit, false},
		"and then another one":         {[]transition{entry(5, 8, prepareCommit), entry(5, 8, 1), entry(5, 9, prepareAbort), entry(5, 9, completeAbort)}, asCommit, false},
		"an abort that skips an epoch": {[]transition{entry(5, 7, ongoing), entry(5, 9, prepareAbort), entry(5, 9, completeAbort)}, asAbort, false},
		"such a one, or another one's": {[]transition{entry(5, 9, prepareAbort), entry(5, 9, completeAbort)}, "", false},
		"no commit skips an epoch":     {[]transition{entry(5, 7, ongoing), entry(5, 9, prepareCommit)}, "", false},
		"another one's end":            {[]transition{entry(5, 9, prepareCommit), entry(5, 9, completeCommit)}, "", false},
		"the one before it":            {[]transition{entry(5, 7, prepareCommit), entry(5, 7, completeCommit), entry(5, 7, 1)}, "", false},
		"another producer's":           {[]transition{entry(6, 8, prepareCommit)}, "", false},
		"it is open":                   {[]transition{entry(5, 7, 1)}, "", false},
		"a new producer":               {[]transition{entry(5, 8, 0)}, "", false},
		"of a partition less":          {[]transition{other}, "doesn't know that it wrote to out/3", true},
		"before epochs of its own":     {[]transition{old}, "", false},
		"one that says both, in order": {[]transition{entry(5, 8, prepareCommit), entry(5, 8, prepareAbort)}, "contradicts", false},
	} {
		t.Run(name, func(t *testing.T) {
			all, against := fromHistory(hung(), c.log)
			as, _, why := weigh(all)
			got := as
			if c.want == "contradicts" {
				got = why
			}
			if c.against {
				got = against
			}
			if c.want == "" && got != "" || !strings.Contains(got, c.want) || !c.against && against != "" {
				t.Errorf("as %q, why %q, against %q", as, why, against)
			}
		})
	}
}

func TestEvidenceOfTheCoordinatorsState(t *testing.T) {
	for _, c := range []struct {
		state string
		epoch int16
		want  string
	}{{"CompleteCommit", 8, asCommit}, {"CompleteAbort", 8, asAbort}, {"CompleteCommit", 9, ""}, {"CompleteAbort", 7, ""}, {"Empty", 9, ""}, {"Ongoing", 8, ""}, {"PrepareCommit", 8, ""}} {
		tx := hung()
		tx.state, tx.ownerEpoch = c.state, c.epoch
		if as, _, _ := weigh(fromState(tx)); as != c.want {
			t.Errorf("%s with epoch %d: %q, want %q", c.state, c.epoch, as, c.want)
		}
	}
}

// id is a checkpoint's id; those of the same number and different sums are two.
func id(slot int64, sum byte) weir.CheckpointID {
	return weir.CheckpointID{Slot: slot, Sum: [32]byte{sum}}
}

func TestEvidenceOfTheStore(t *testing.T) {
	two, three, four := id(2, 1), id(3, 1), id(4, 1)
	checkpoint := func(c, parent weir.CheckpointID) weir.StoredCheckpoint {
		return weir.StoredCheckpoint{ID: c, Parent: parent}
	}
	for name, c := range map[string]struct {
		of   weir.CheckpointID
		all  []weir.StoredCheckpoint
		want string
	}{
		"the newest":                  {three, []weir.StoredCheckpoint{checkpoint(two, weir.CheckpointID{}), checkpoint(three, two)}, ""},
		"another was built on it":     {three, []weir.StoredCheckpoint{checkpoint(two, weir.CheckpointID{}), checkpoint(three, two), checkpoint(four, three)}, asCommit},
		"another was built beside it": {three, []weir.StoredCheckpoint{checkpoint(two, weir.CheckpointID{}), checkpoint(three, two), checkpoint(id(6, 1), two)}, asAbort},
		"unknown":                     {id(3, 9), []weir.StoredCheckpoint{checkpoint(two, weir.CheckpointID{}), checkpoint(three, two), checkpoint(four, three)}, ""},
		"none":                        {weir.CheckpointID{}, []weir.StoredCheckpoint{checkpoint(two, weir.CheckpointID{})}, ""},
	} {
		if as, _, _ := weigh(fromStore(c.of, c.all)); as != c.want {
			t.Errorf("%s: %q, want %q", name, as, c.want)
		}
	}
}

func TestEvidenceOfTheControlTopic(t *testing.T) {
	record := func(incarnation int64, checkpoint, parent weir.CheckpointID) *controlRecord {
		return &controlRecord{UUID: "u", Incarnation: incarnation, Checkpoint: checkpoint.String(), Parent: parent.String(), offset: 30}
	}
	one, two, three := id(2, 1), id(3, 1), id(4, 1)
	own := record(1, two, one)
	for name, c := range map[string]struct {
		says controlSays
		want string
	}{
		"nothing":                               {controlSays{}, ""},
		"its record alone":                      {controlSays{record: own}, ""},
		"its marker":                            {controlSays{record: own, marker: asAbort}, asAbort},
		"the next epoch's record":               {controlSays{record: own, after: []*controlRecord{record(1, three, two)}}, asCommit},
		"a later start that went on before it":  {controlSays{record: own, after: []*controlRecord{record(5, id(6, 1), one)}}, asAbort},
		"the same start, once more":             {controlSays{record: own, after: []*controlRecord{record(1, id(6, 1), one)}}, ""},
		"a claim, which commits nothing":        {controlSays{record: record(1, one, one), after: []*controlRecord{record(1, two, one)}}, ""},
		"a later record that says nothing":      {controlSays{record: own, after: []*controlRecord{record(5, id(9, 1), id(8, 1))}}, ""},
		"a marker against a record that is not": {controlSays{record: own, marker: asCommit, after: []*controlRecord{record(5, id(6, 1), one)}}, ""},
	} {
		as, _, why := weigh(c.says.evidence("job.ckpt"))
		if as != c.want || as == "" && why == "" {
			t.Errorf("%s: %q (%s), want %q", name, as, why, c.want)
		}
	}
}

// What contradicts itself proves nothing, in whatever order it is found.
func TestEvidenceThatContradictsItself(t *testing.T) {
	a, b := evidence{asCommit, "one says so"}, evidence{asAbort, "another says not"}
	for _, all := range [][]evidence{{a, b}, {b, a}, {a, a, b}} {
		if as, texts, why := weigh(all); as != "" || texts != nil || !strings.Contains(why, "one says so") || !strings.Contains(why, "another says not") {
			t.Errorf("as %q, %v, %q", as, texts, why)
		}
	}
}

func TestOwnTransactionalIDs(t *testing.T) {
	e := &exam{Examination: weir.Examination{Job: "job"}, ask: &ask{c: NewCluster([]string{"h:1"}, Prefix("p."))}}
	for name, want := range map[string]bool{
		"p.job-0-a": true, "p.job-0-b": true, "p.job-12-a": true, "p.job-0-c": false, "p.job-00-a": false, "p.job-x-a": false,
		"job-0-a": false, "p.job-0": false, "p.job-1-0-a": false, "p.jobs-0-a": false, "": false,
	} {
		if got := e.owns(name); got != want {
			t.Errorf("%q: %v, want %v", name, got, want)
		}
	}
}

func TestMarkerThatEndsATransaction(t *testing.T) {
	for _, c := range []struct {
		marker int16
		aborts bool
		want   bool
	}{{6, true, false}, {7, false, true}, {7, true, true}, {8, false, true}, {8, true, true}, {9, true, true}, {9, false, false}, {10, true, false}} {
		if got := endsWith(7, c.marker, c.aborts); got != c.want {
			t.Errorf("a marker with epoch %d, abort %v: %v, want %v", c.marker, c.aborts, got, c.want)
		}
	}
}
