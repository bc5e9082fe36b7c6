package privacy_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/waybill-go/waybill/framework/privacy"
	"github.com/waybill-go/waybill/framework/store/sqlite"
)

// moving wraps with one master key, and unwraps what that or another one has wrapped.
type moving struct {
	privacy.Master
	from privacy.Master
}

func (m moving) Unwrap(ctx context.Context, wrapped, bound []byte, name string) ([]byte, error) {
	key, err := m.Master.Unwrap(ctx, wrapped, bound, name)
	if errors.Is(err, privacy.ErrMaster) {
		return m.from.Unwrap(ctx, wrapped, bound, name)
	}
	return key, err
}

// An outbox changes to another kind of master key.
func ExampleMaster() {
	ctx := context.Background()
	folder, err := os.MkdirTemp("", "shop")
	check(err)
	defer os.RemoveAll(folder)
	db, err := sqlite.OpenDB(filepath.Join(folder, "shop.db"))
	check(err)
	defer db.Close()
	_, err = sqlite.Migrate(ctx, db, sqlite.Config{})
	check(err)
	store, err := sqlite.Open(ctx, db, sqlite.Config{})
	check(err)
	before, err := privacy.LocalKeys("MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=")
	check(err)
	after, err := privacy.LocalKeys("ZmVkY2JhOTg3NjU0MzIxMGZlZGNiYTk4NzY1NDMyMTA=") // or kms.Open of sinks/aws/kms or sinks/gcp/kms
	check(err)
	keys, err := privacy.New(store, privacy.Config{Master: before})
	check(err)
	check(keys.Prepare(ctx))

	keys, err = privacy.New(store, privacy.Config{Master: moving{Master: after, from: before}})
	check(err)
	n, err := keys.Rotate(ctx)
	check(err)
	fmt.Println("moved", n)
	keys, err = privacy.New(store, privacy.Config{Master: after})
	check(err)
	check(keys.Check(ctx))
	// Output: moved 1
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
