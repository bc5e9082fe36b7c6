package bench

import "context"

func (b *bench) sweep(ctx context.Context) ([]Case, error) { return nil, nil }
