package log

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
)

// ID names one entry: the slot that holds it and the SHA-256 of its file. Two
// stores can both have a slot 42; they can't have the same id. The zero ID is
// "before the first checkpoint".
type ID struct {
	Slot int64
	Sum  [32]byte
}

// IsZero reports whether the id names no entry.
func (id ID) IsZero() bool { return id == ID{} }

// String returns SLOT-HEX, the form that ledgers hold; "" for the zero ID.
func (id ID) String() string {
	if id.IsZero() {
		return ""
	}
	return fmt.Sprintf("%d-%s", id.Slot, hex.EncodeToString(id.Sum[:]))
}

// ParseID is the inverse of String. It accepts what String writes and nothing
// else: a ledger that holds anything else wasn't written by a job.
func ParseID(s string) (ID, error) {
	if s == "" {
		return ID{}, nil
	}
	var id ID
	slot, sum, _ := strings.Cut(s, "-")
	n, err := strconv.ParseInt(slot, 10, 64)
	if err == nil && len(sum) == hex.EncodedLen(len(id.Sum)) {
		id.Slot = n
		_, err = hex.Decode(id.Sum[:], []byte(sum))
	}
	if err != nil || n < 1 || n > maxSlot || id.String() != s {
		return ID{}, fmt.Errorf("%q is no checkpoint id: expected a slot number, a dash and 64 hexadecimal digits", s)
	}
	return id, nil
}

// MarshalText returns String's form, for JSON.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText accepts what ParseID accepts.
func (id *ID) UnmarshalText(b []byte) (err error) {
	*id, err = ParseID(string(b))
	return err
}
