package weir_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/weirstream/weir/internal/sim"
)

func TestZZStress(t *testing.T) {
	for _, j := range hitJobs(t) {
		everyCase(t, 400, func(ctx context.Context, i int) error {
			db, err := j.place()
			if err != nil {
				return err
			}
			defer os.RemoveAll(filepath.Dir(db))
			l := &life{m: sim.NewMachine(sim.NewDisk()), db: db, tasks: 1 + i%4}
			if err := j.run(ctx, l); err != nil {
				return err
			}
			if err := equalTables(db, j.final); err != nil {
				t.Logf("%s tasks %d", j.name, l.tasks)
				return err
			}
			return nil
		})
		t.Log(j.name, "done")
	}
}
