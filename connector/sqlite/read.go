package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"reflect"
	"time"
)

// readRows reads a whole table back into rows.
func readRows[R any](ctx context.Context, path string, l *layout) (rows []R, err error) {
	there, err := exists(path)
	if err != nil || !there {
		return nil, err
	}
	c, err := dial(ctx, path, false)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	if there, err := c.checkTable(ctx, l); err != nil || !there {
		return nil, err
	}
	err = c.query(ctx, "read rows", "SELECT "+quote(l.names()...)+" FROM "+quote(l.table), nil, func(values []driver.Value) error {
		var row R
		v := reflect.ValueOf(&row).Elem()
		for i, c := range l.cols {
			if err := setField(v.Field(c.field), values[i]); err != nil {
				return fmt.Errorf("column %q: %w", c.name, err)
			}
		}
		rows = append(rows, row)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read table %q: %w", l.table, explain(path, err))
	}
	return rows, nil
}

func setField(f reflect.Value, value driver.Value) error {
	switch v := value.(type) {
	case int64:
		switch {
		case f.CanInt():
			f.SetInt(v)
			return nil
		case f.CanUint():
			f.SetUint(uint64(v))
			return nil
		case f.Kind() == reflect.Bool:
			f.SetBool(v != 0)
			return nil
		}
	case float64:
		if f.CanFloat() {
			f.SetFloat(v)
			return nil
		}
	case []byte:
		if f.Kind() == reflect.Slice {
			f.SetBytes(append([]byte(nil), v...))
			return nil
		}
	case string:
		if f.Kind() == reflect.String {
			f.SetString(v)
			return nil
		}
		t, err := time.Parse(time.RFC3339Nano, v)
		if err != nil {
			return err
		}
		f.Set(reflect.ValueOf(t))
		return nil
	case time.Time:
		if f.Type() == reflect.TypeFor[time.Time]() {
			f.Set(reflect.ValueOf(v))
			return nil
		}
	}
	return fmt.Errorf("it holds a %T, which doesn't go into a %v", value, f.Type())
}
