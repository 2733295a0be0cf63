package connector_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/examples/connector"
)

// Sale is a row of the table sales, and of the table big.
type Sale struct {
	Item  string
	Cents int64
}

// A job copies the large sales from one table to another. Half-way it breaks off;
// started again it goes on, and each sale is there once.
func Example() {
	dir, err := os.MkdirTemp("", "weir")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	dsn := "file:" + filepath.Join(dir, "shop.db") + "?_pragma=busy_timeout(5000)"
	if err := fill(dsn, 1000); err != nil {
		fmt.Println(err)
		return
	}
	table := func(name string) connector.Records[Sale] {
		return connector.Records[Sale]{Driver: "sqlite", DSN: dsn, Table: name,
			Columns: []string{"item", "cents"}, Fields: func(s *Sale) []any { return []any{&s.Item, &s.Cents} }}
	}
	for _, breaks := range []bool{true, false} {
		job := weir.NewJob("big-sales")
		job.From("sales", connector.Rows(table("sales"))).
			Filter(func(s Sale) bool { return s.Cents >= 500 }).
			TryMap(func(s Sale) (Sale, error) {
				if breaks && s.Cents == 700 {
					return s, errors.New("the function breaks off")
				}
				return s, nil
			}).
			To("big", connector.Table(table("big")))
		err := job.Run(context.Background(), weir.StateDir(filepath.Join(dir, "state")), weir.EveryRecords(50), weir.BatchSize(10))
		fmt.Println("the input was at fault:", errors.Is(err, weir.ErrInput))
	}
	var n, distinct int
	if err := ask(dsn, "SELECT count(*), count(DISTINCT cents) FROM big", &n, &distinct); err != nil {
		fmt.Println(err)
	}
	fmt.Println(n, "rows,", distinct, "sales")
	// Output:
	// the input was at fault: true
	// the input was at fault: false
	// 500 rows, 500 sales
}

// fill makes n sales of 0, 1, 2, ... cents.
func fill(dsn string, n int) error {
	db, err := sql.Open("sqlite", dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	_, err = db.ExecContext(context.Background(), `CREATE TABLE sales (id INTEGER PRIMARY KEY AUTOINCREMENT, item TEXT NOT NULL, cents INTEGER NOT NULL);
CREATE TABLE big (id INTEGER PRIMARY KEY AUTOINCREMENT, item TEXT NOT NULL, cents INTEGER NOT NULL);
WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < ?)
INSERT INTO sales (item, cents) SELECT 'item ' || i, i FROM n`, n)
	return err
}

func ask(dsn, query string, into ...any) error {
	db, err := sql.Open("sqlite", dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	return db.QueryRowContext(context.Background(), query).Scan(into...)
}
