package bench

import "context"

func (b *bench) fault(ctx context.Context) ([]Case, error) { return nil, nil }
