package connectortest

import (
	"context"
	"database/sql/driver"
	"errors"

	"github.com/weirstream/weir/internal/sys"
)

// Call performs one call of a connector to the world outside, in the life that ctx
// belongs to: the suite crashes the machine before and after it, and from then on
// performs none. It is for tests of connectors whose database isn't reached by
// package database/sql, for which there is Driver: call it where your client lets
// a test in, such as in an http.RoundTripper, with the context of the request.
func Call(ctx context.Context, name string, do func() error) error {
	return sys.From(ctx).SQL(name, do)
}

// Driver wraps a driver of package database/sql, so that the suite can crash the
// machine before and after each of its calls to the database. A connector that
// isn't part of this module is tested on it: register the result under a name
// of its own, and let SinkUnderTest.New open its databases by that name.
//
// What counts is connecting, statements, queries, and the beginning and the
// COMMIT of a transaction. A call belongs to the life whose context it is made
// with, so one without a context (db.Exec in place of db.ExecContext) is neither
// counted nor kept from a machine that has crashed. A rollback always happens:
// that is what becomes of a transaction whose connection is gone.
func Driver(d driver.Driver) driver.Driver { return crashingDriver{d} }

type crashingDriver struct{ driver.Driver }

// OpenConnector implements driver.DriverContext.
func (d crashingDriver) OpenConnector(name string) (driver.Connector, error) {
	if dc, ok := d.Driver.(driver.DriverContext); ok {
		c, err := dc.OpenConnector(name)
		return crashingConnector{c, d}, err
	}
	return crashingConnector{namedConnector{d.Driver, name}, d}, nil
}

// namedConnector is the connector of a driver that has none.
type namedConnector struct {
	driver.Driver
	name string
}

func (c namedConnector) Connect(context.Context) (driver.Conn, error) { return c.Open(c.name) }

type crashingConnector struct {
	inner interface {
		Connect(ctx context.Context) (driver.Conn, error)
	}
	driver driver.Driver
}

func (c crashingConnector) Driver() driver.Driver { return c.driver }

func (c crashingConnector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := call(ctx, "connect", func() (driver.Conn, error) { return c.inner.Connect(ctx) })
	if err != nil {
		if conn != nil { // connected, and then it crashed
			err = errors.Join(err, conn.Close())
		}
		return nil, err
	}
	return crashingConn{conn}, nil
}

// call performs one call to a database, unless the machine has crashed.
func call[R any](ctx context.Context, name string, do func() (R, error)) (r R, err error) {
	err = Call(ctx, name, func() (err error) {
		r, err = do()
		return err
	})
	return r, err
}

// crashingConn is a connection. What the driver's can't do it leaves to package
// database/sql, as that does: driver.ErrSkip.
type crashingConn struct{ driver.Conn }

func (c crashingConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	e, ok := c.Conn.(driver.ExecerContext)
	if !ok {
		return nil, driver.ErrSkip
	}
	return call(ctx, query, func() (driver.Result, error) { return e.ExecContext(ctx, query, args) })
}

func (c crashingConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	q, ok := c.Conn.(driver.QueryerContext)
	if !ok {
		return nil, driver.ErrSkip
	}
	return rows(call(ctx, query, func() (driver.Rows, error) { return q.QueryContext(ctx, query, args) }))
}

// rows closes what nobody will: the answer to the query at which it crashed.
func rows(r driver.Rows, err error) (driver.Rows, error) {
	if err != nil && r != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, err
}

func (c crashingConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	prepare := func() (driver.Stmt, error) { return c.Prepare(query) }
	if p, ok := c.Conn.(driver.ConnPrepareContext); ok {
		prepare = func() (driver.Stmt, error) { return p.PrepareContext(ctx, query) }
	}
	s, err := prepare() // changes nothing, so there is nothing to crash at
	if err != nil {
		return nil, err
	}
	return crashingStmt{s, query}, nil
}

func (c crashingConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	b, ok := c.Conn.(driver.ConnBeginTx)
	if !ok {
		return nil, errors.New("connectortest.Driver: the driver can't begin a transaction with a context (driver.ConnBeginTx)")
	}
	tx, err := call(ctx, "BEGIN", func() (driver.Tx, error) { return b.BeginTx(ctx, opts) })
	if err != nil {
		if tx != nil {
			err = errors.Join(err, tx.Rollback())
		}
		return nil, err
	}
	return crashingTx{tx, ctx}, nil
}

func (c crashingConn) CheckNamedValue(v *driver.NamedValue) error {
	if n, ok := c.Conn.(driver.NamedValueChecker); ok {
		return n.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

func (c crashingConn) ResetSession(ctx context.Context) error {
	if r, ok := c.Conn.(driver.SessionResetter); ok {
		return r.ResetSession(ctx)
	}
	return nil
}

func (c crashingConn) IsValid() bool {
	v, ok := c.Conn.(driver.Validator)
	return !ok || v.IsValid()
}

// crashingStmt is a prepared statement.
type crashingStmt struct {
	driver.Stmt
	query string
}

var errStatement = errors.New("connectortest.Driver: the driver can't run a prepared statement with a context (driver.StmtExecContext, driver.StmtQueryContext)")

func (s crashingStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	e, ok := s.Stmt.(driver.StmtExecContext)
	if !ok {
		return nil, errStatement
	}
	return call(ctx, s.query, func() (driver.Result, error) { return e.ExecContext(ctx, args) })
}

func (s crashingStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	q, ok := s.Stmt.(driver.StmtQueryContext)
	if !ok {
		return nil, errStatement
	}
	return rows(call(ctx, s.query, func() (driver.Rows, error) { return q.QueryContext(ctx, args) }))
}

// crashingTx is a transaction, whose COMMIT belongs to the life that began it.
type crashingTx struct {
	driver.Tx
	ctx context.Context // a COMMIT has none of its own
}

func (t crashingTx) Commit() error {
	_, err := call(t.ctx, "COMMIT", func() (struct{}, error) { return struct{}{}, t.Tx.Commit() })
	return err
}
