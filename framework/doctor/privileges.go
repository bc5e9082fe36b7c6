package doctor

import (
	"cmp"
	"context"
	"strings"

	"github.com/waybill-go/waybill/framework/store/mysql"
	"github.com/waybill-go/waybill/framework/store/postgres"
)

// privileged is an Examiner that knows what a role lacks.
type privileged interface {
	Missing(ctx context.Context, d postgres.Duty) ([]string, error)
}

// mysqlPrivileges is that of MySQL, whose duties are the same.
type mysqlPrivileges struct{ *mysql.Examiner }

func (e mysqlPrivileges) Missing(ctx context.Context, d postgres.Duty) ([]string, error) {
	return e.Examiner.Missing(ctx, string(d))
}

func checkPrivileges(ctx context.Context, x *examination) (verdict, error) {
	server := privileged(x.pg)
	if x.my != nil {
		server = mysqlPrivileges{x.my}
	}
	if x.schemas().Schema(ctx) != nil && x.closed != nil && !postgres.IsDenied(x.closed) && !mysql.IsDenied(x.closed) {
		return skip("there are no tables of this version: see schema", ""), nil
	}
	duties := []postgres.Duty{cmp.Or(x.Duty, postgres.Forwarder)}
	if x.Duty == "" && len(x.Schedules) > 0 {
		duties = append(duties, postgres.Scheduler)
	}
	return lacking(ctx, server, x.Duty != "", duties...)
}

// lacking says what a role lacks for duties; sure: it is known to have them.
func lacking(ctx context.Context, server privileged, sure bool, duties ...postgres.Duty) (verdict, error) {
	var missing, names []string
	for _, d := range duties {
		lacks, err := server.Missing(ctx, d)
		if err != nil {
			return verdict{}, err
		}
		missing, names = append(missing, lacks...), append(names, string(d))
	}
	list, fix := strings.Join(names, " and "), strings.Join(missing, "\n")
	switch {
	case len(missing) == 0:
		return ok("the role has those of a %s", list), nil
	case sure:
		return fail(fix, "the role lacks %d of those of a %s", len(missing), list), nil
	}
	return skip("the role is not one of a "+list, fix), nil
}
