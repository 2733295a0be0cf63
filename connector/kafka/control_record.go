package kafka

import (
	"encoding/json/v2"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/weirstream/weir"
)

// controlVersion is that of control records: see docs/formats.md.
const controlVersion = 1

// controlRecord is the ledger of all sinks of a job on one cluster, as it was
// committed by one transaction: the last one of a run counts. Its message's key is
// controlKey.
type controlRecord struct {
	Version int    `json:"weir"`
	Job     string `json:"job"`
	UUID    string `json:"uuid"`
	Worker  int    `json:"worker"` // 0 while one process runs a job
	// The start that wrote it, and only that one may write the next one, unless a
	// newer start has shut it out.
	Incarnation int64  `json:"incarnation"`
	Nonce       string `json:"nonce"`
	// Number is that of the transaction, over all runs of the job: the next one is
	// one more, and its parity names the producer.
	Number int64 `json:"number"`
	// Checkpoint is what the transaction commits, Parent what it goes on from; both
	// are one where nothing was committed but a claim, and "" before the first.
	Checkpoint string            `json:"checkpoint"`
	Parent     string            `json:"parent"`
	Epoch      int64             `json:"epoch"`     // of the checkpoint; -1: not known
	Sinks      map[string]string `json:"sinks"`     // the checkpoint that the ledger of each names
	Topics     map[string]string `json:"topics"`    // ids of the topics that were written
	Producers  []producerState   `json:"producers"` // a and b
	Cluster    string            `json:"cluster"`   // its id
	Topic      string            `json:"topic"`     // id of the control topic itself

	offset int64                        // where it was read
	ids    map[string]weir.CheckpointID // of Sinks
}

// producerState is which producer a lane had, so that one is known again that the
// coordinator has forgotten.
type producerState struct {
	ID    int64 `json:"id"`
	Epoch int16 `json:"epoch"`
}

// controlKey is the key of a run's control records, so that compaction keeps the
// last one of each.
func controlKey(uuid string) []byte { return []byte(uuid + "/0") }

// place says where a record is, for messages.
func (r *controlRecord) place() string {
	if r == nil {
		return "no record"
	}
	return fmt.Sprintf("the record at offset %d (incarnation %d, number %d)", r.offset, r.Incarnation, r.Number)
}

func (r *controlRecord) encode() ([]byte, error) {
	b, err := json.Marshal(r, json.Deterministic(true))
	if err != nil {
		return nil, fmt.Errorf("encode a control record: %w", err)
	}
	return b, nil
}

// parseControl reads a control record's value.
func parseControl(key, value []byte) (*controlRecord, error) {
	var version struct {
		Version int `json:"weir"`
	}
	switch err := json.Unmarshal(value, &version); {
	case err != nil:
		return nil, fmt.Errorf("it isn't JSON: %w", err)
	case version.Version == 0:
		return nil, errors.New("it has no version, so no job of weir wrote it")
	case version.Version != controlVersion:
		return nil, fmt.Errorf("it has version %d, and this program knows %d: use the newer one", version.Version, controlVersion)
	}
	r := &controlRecord{}
	if err := json.Unmarshal(value, r, json.RejectUnknownMembers(true)); err != nil {
		return nil, err
	}
	if string(key) != string(controlKey(r.UUID)) {
		return nil, fmt.Errorf("its key is %q, and that of run %s would be %q", key, r.UUID, controlKey(r.UUID))
	}
	if r.UUID == "" || r.Number < 0 || r.Incarnation < 1 || r.Nonce == "" {
		return nil, errors.New("it doesn't say which start of which run wrote it")
	}
	r.ids = map[string]weir.CheckpointID{}
	for sink, text := range r.Sinks {
		id, err := ledgerID(text)
		if err != nil {
			return nil, fmt.Errorf("sink %s: %w", sink, err)
		}
		r.ids[sink] = id
	}
	return r, nil
}

// ledgerID is the inverse of CheckpointID.String, for the zero id too.
func ledgerID(text string) (weir.CheckpointID, error) {
	if text == "" {
		return weir.CheckpointID{}, nil
	}
	return weir.ParseCheckpointID(text)
}

// by is the start that wrote it.
func (r *controlRecord) by() weir.Incarnation {
	return weir.Incarnation{Number: r.Incarnation, Nonce: r.Nonce}
}

// topicNames are the topics that it names.
func (r *controlRecord) topicNames() []string {
	if r == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(r.Topics))
}
