package sqlite

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/connector/connectortest"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func conformance(eager bool) connectortest.SinkUnderTest {
	sink := func(dir, target string) Sink[connectortest.Row] {
		s := Upsert[connectortest.Row](filepath.Join(dir, "rows.db"), target, "key", "part")
		if eager {
			s = s.Eager()
		}
		return s
	}
	return connectortest.SinkUnderTest{
		New: func(dir, target string) weir.Sink[connectortest.Row] { return sink(dir, target) },
		Rows: func(ctx context.Context, dir, target string) ([]connectortest.Row, error) {
			s := sink(dir, target)
			return readRows[connectortest.Row](ctx, s.path, s.layout)
		},
		Upserts:  true,
		Rejected: []connectortest.Row{{Key: "a\x00b"}, {Key: "\xff"}, {Key: "k", Note: "\xc3("}},
	}
}

func TestTransactional(t *testing.T) { connectortest.Sink(t, conformance(false)) }

func TestEager(t *testing.T) { connectortest.Sink(t, conformance(true)) }
