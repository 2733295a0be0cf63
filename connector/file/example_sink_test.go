package file_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/connector/file"
)

// Each record is a line of a file that appears whole, once its epoch is
// committed.
func ExampleJSONLines() {
	dir, err := os.MkdirTemp("", "weir")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	out := filepath.Join(dir, "sales")

	job := weir.NewJob("shop")
	job.From("sales", weir.Slice(Sale{"tea", 350}, Sale{"cake", 400})).
		To("archive", file.JSONLines[Sale](out).MaxPart(64<<20))
	if err := job.Run(context.Background(), weir.StateDir(filepath.Join(dir, "state"))); err != nil {
		fmt.Println(err)
		return
	}
	files, err := filepath.Glob(filepath.Join(out, "archive-*.jsonl"))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Print(string(data))
	}
	// Output:
	// {"item":"tea","cents":350}
	// {"item":"cake","cents":400}
}
