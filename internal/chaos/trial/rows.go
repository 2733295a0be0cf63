package trial

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// Each calls row for each row of a query, once dst holds it.
func Each(c *sql.DB, query string, row func(), dst ...any) (err error) {
	rs, err := c.QueryContext(context.Background(), query)
	if err != nil {
		return fmt.Errorf("%s: %w", query, err)
	}
	defer func() { err = errors.Join(err, rs.Close()) }()
	for rs.Next() {
		if err := rs.Scan(dst...); err != nil {
			return fmt.Errorf("%s: %w", query, err)
		}
		row()
	}
	return rs.Err()
}
