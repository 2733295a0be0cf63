package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/internal/sys"
	"modernc.org/sqlite"
)

// SQLite's primary result codes that are told apart here.
const (
	codeBusy     = 5
	codeReadOnly = 8
	codeIO       = 10
	codeFull     = 13
	codeCantOpen = 14
	codeNotADB   = 26
)

// conn is one connection, used by one goroutine at a time. It talks to the
// driver directly: database/sql costs a microsecond and six allocations a row.
// Every call that the database could notice goes through the environment's SQL.
type conn struct {
	path  string
	file  os.FileInfo // as it was opened
	dc    driver.Conn
	stmts map[string]driver.Stmt
}

// dial opens the database. The calls run without the context's cancellation,
// which would cost the driver a goroutine a call: they are short, and the
// context is looked at between them.
func dial(ctx context.Context, path string, create bool) (*conn, error) {
	mode := "rw"
	if create {
		mode = "rwc"
	}
	dsn := url.URL{Scheme: "file", Path: path, RawQuery: "mode=" + mode}
	connector, err := sqlite.NewConnector(dsn.String())
	if err != nil {
		return nil, explain(path, err)
	}
	c := &conn{path: path, stmts: map[string]driver.Stmt{}}
	err = call(ctx, "open", func() error {
		c.dc, err = connector.Connect(context.WithoutCancel(ctx))
		return err
	})
	if err == nil {
		err = c.settings(ctx)
	}
	if err == nil {
		c.file, err = os.Stat(path)
	}
	if err != nil {
		return nil, errors.Join(explain(path, err), c.close())
	}
	return c, nil
}

// settings makes commits durable and leaves waiting for locks to retry.
func (c *conn) settings(ctx context.Context) error {
	for _, q := range []string{"PRAGMA busy_timeout = 0", "PRAGMA synchronous = FULL"} {
		// Even these wait where another process recovers the database.
		if err := retry(ctx, c.path, func() error { return c.run(ctx, "pragma", q) }); err != nil {
			return err
		}
	}
	mode := ""
	err := retry(ctx, c.path, func() error {
		return c.query(ctx, "wal", "PRAGMA journal_mode = WAL", nil, func(v []driver.Value) error {
			mode, _ = v[0].(string)
			return nil
		})
	})
	if err == nil && mode != "wal" {
		err = fmt.Errorf("sqlite: %s stays in journal mode %q where WAL is needed: "+
			"a network file system can't hold it, name a path on a local disk", c.path, mode)
	}
	return err
}

// call performs one effect through the environment.
func call(ctx context.Context, name string, do func() error) error {
	return sys.From(ctx).SQL("sqlite "+name, do)
}

func (c *conn) prepare(query string) (driver.Stmt, error) {
	if st, ok := c.stmts[query]; ok {
		return st, nil
	}
	st, err := c.dc.(driver.ConnPrepareContext).PrepareContext(context.Background(), query)
	if err == nil {
		c.stmts[query] = st
	}
	return st, err
}

// exec runs a statement and returns how many rows it changed. name is the
// call's, for the environment.
func (c *conn) exec(ctx context.Context, name, query string, args ...any) (changed int64, err error) {
	err = call(ctx, name, func() error {
		st, err := c.prepare(query)
		if err != nil {
			return err
		}
		res, err := st.(driver.StmtExecContext).ExecContext(context.WithoutCancel(ctx), named(args))
		if err != nil {
			return err
		}
		changed, err = res.RowsAffected()
		return err
	})
	return changed, err
}

// run executes a statement that is used once.
func (c *conn) run(ctx context.Context, name, query string) error {
	return call(ctx, name, func() error { return c.raw(query) })
}

// raw is run without the environment, for what no other process can notice.
func (c *conn) raw(query string) error {
	_, err := c.dc.(driver.ExecerContext).ExecContext(context.Background(), query, nil)
	return err
}

// query calls scan for each row of the result. Values are valid until it
// returns.
func (c *conn) query(ctx context.Context, name, query string, args []any, scan func([]driver.Value) error) error {
	return call(ctx, name, func() (err error) {
		rows, err := c.dc.(driver.QueryerContext).QueryContext(context.WithoutCancel(ctx), query, named(args))
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, rows.Close()) }()
		values := make([]driver.Value, len(rows.Columns()))
		for {
			switch err := rows.Next(values); {
			case errors.Is(err, io.EOF):
				return nil
			case err != nil:
				return err
			}
			if err := scan(values); err != nil {
				return err
			}
		}
	})
}

func named(args []any) []driver.NamedValue {
	out := make([]driver.NamedValue, len(args))
	for i, a := range args {
		out[i] = driver.NamedValue{Ordinal: i + 1, Value: a}
	}
	return out
}

// errNothing ends a transaction that turned out to have nothing to do.
var errNothing = errors.New("nothing to do")

// txn runs do in a transaction that has the write lock from its first
// statement on: one that reads first and upgrades its lock can fail at a point
// where only the whole of it can be tried again. The whole of it is, for as
// long as another connection holds the lock. do must therefore be repeatable.
//
// After any other error nothing of it remains, except that the outcome of the
// COMMIT itself is unknown where that call failed.
func (c *conn) txn(ctx context.Context, do func() error) error {
	return retry(ctx, c.path, func() error {
		_, err := c.exec(ctx, "begin", "BEGIN IMMEDIATE")
		if err == nil {
			err = do()
		}
		if err == nil {
			err = c.there()
		}
		if err == nil {
			if _, err = c.exec(ctx, "commit", "COMMIT"); err == nil {
				return nil
			}
			if !busy(err) {
				err = fmt.Errorf("commit, whose outcome is therefore unknown: %w", err)
			}
		}
		// Fails where no transaction is open, which is as good.
		_ = c.raw("ROLLBACK")
		if errors.Is(err, errNothing) {
			return nil
		}
		return explain(c.path, err)
	})
}

// there refuses to go on in a file that nobody else can find any more.
func (c *conn) there() error {
	now, err := os.Stat(c.path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("%w: the database %s was removed while the job runs: what it would commit could be read by nobody: "+
			"restore the database from a backup, or start over with --start-over (StartOver)", weir.ErrRefused, c.path)
	case err != nil:
		return fmt.Errorf("look at %s: %w", c.path, err)
	case !os.SameFile(c.file, now):
		return fmt.Errorf("%w: another file has been put in the place of the database %s while the job runs: "+
			"stop the job before a database is replaced, and bring back the one that belongs to it", weir.ErrRefused, c.path)
	}
	return nil
}

// close ends the connection; an open transaction ends with it. It bypasses the
// environment: a process that dies closes its files too.
func (c *conn) close() error {
	if c == nil || c.dc == nil {
		return nil
	}
	var errs []error
	for _, st := range c.stmts {
		errs = append(errs, st.Close())
	}
	errs = append(errs, c.dc.Close())
	c.dc = nil
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("sqlite: close %s: %w", c.path, err)
	}
	return nil
}

// Waits for a lock double from the first to the last of these.
const (
	firstWait = time.Millisecond
	lastWait  = 50 * time.Millisecond
	sayAfter  = time.Second
)

// retry calls do again while the database is locked and ctx lives.
func retry(ctx context.Context, path string, do func() error) error {
	clock := sys.From(ctx).Clock
	since := clock.Now()
	said := false
	var err error
	for wait := firstWait; ; wait = min(2*wait, lastWait) {
		switch {
		case ctx.Err() != nil && err != nil:
			return fmt.Errorf("%w while waiting for %s: %w", context.Cause(ctx), path, err)
		case ctx.Err() != nil:
			return context.Cause(ctx)
		}
		if err = do(); !busy(err) {
			return err
		}
		if !said && clock.Now().Sub(since) >= sayAfter {
			said = true
			waiting(ctx, fmt.Sprintf("the write lock of %s: the database is locked by another process; "+
				"a stopped process may hold the lock", path))
		}
		select {
		case <-ctx.Done():
		case <-clock.After(wait):
		}
	}
}

func waiting(ctx context.Context, what string) {
	if tell := sys.From(ctx).Waiting; tell != nil {
		tell(what)
		return
	}
	slog.WarnContext(ctx, "waiting for "+what)
}

// code is SQLite's primary result code, 0 if the error isn't SQLite's.
func code(err error) int {
	var e *sqlite.Error
	if errors.As(err, &e) {
		return e.Code() & 0xff
	}
	return 0
}

func busy(err error) bool { return code(err) == codeBusy }

// explain says what to do about the errors that a user can do something about.
func explain(path string, err error) error {
	hint := ""
	switch code(err) {
	case 0, codeBusy:
		return err
	case codeNotADB:
		hint = ": the file isn't a SQLite database: name another one, or move it away"
	case codeCantOpen:
		hint = ": check that the file and its folder can be read and written"
	case codeReadOnly:
		hint = ": the database can't be written: check the permissions of the file and its folder"
	case codeFull:
		hint = ": its disk is full"
	}
	if strings.Contains(err.Error(), path+hint) {
		return err // explained already
	}
	return onDisk(fmt.Errorf("sqlite: %s%s: %w", path, hint, err))
}

// diskError is an error of SQLite's that a disk caused, which has the system's
// number for it too: a job waits for its disks.
type diskError struct {
	error
	number syscall.Errno
}

func (e diskError) Unwrap() []error { return []error{e.error, e.number} }

func onDisk(err error) error {
	switch code(err) {
	case codeFull:
		return diskError{err, syscall.ENOSPC}
	case codeIO:
		return diskError{err, syscall.EIO}
	}
	return err
}
