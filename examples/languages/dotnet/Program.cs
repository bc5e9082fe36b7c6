// dotnet run -- place o-17 c-1 kite; dotnet run -- handle NOTIFICATION o-17
using System.Text.Json;
using Npgsql;

await using var source = NpgsqlDataSource.Create(Environment.GetEnvironmentVariable("NPGSQL_CONNECTION")!);
await using var connection = await source.OpenConnectionAsync();
await using var transaction = await connection.BeginTransactionAsync(); // without a commit, its disposal rolls back
var result = args[0] == "place" ? await Place(args[1], args[2], args[3]) : await Handle(args[1], args[2]);
await transaction.CommitAsync();
Console.WriteLine(result);

// Stores an order and its notification, both or neither.
async Task<string> Place(string order, string customer, string product)
{
    var payload = JsonSerializer.Serialize(new { order_id = order, product });
    var id = await Command("SELECT outbox_publish('order.placed', $1, $2::json)", customer, payload).ExecuteScalarAsync();
    await Command("INSERT INTO orders (id, product) VALUES ($1, $2)", order, product).ExecuteNonQueryAsync();
    return $"{id} {payload}";
}

// Writes an invoice once, however often the notification is delivered.
async Task<string> Handle(string id, string order)
{
    var first = await Command("SELECT outbox_first('invoices', $1)", id).ExecuteScalarAsync() is true;
    if (first) await Command("INSERT INTO invoices (order_id) VALUES ($1)", order).ExecuteNonQueryAsync();
    return first ? "first" : "seen before";
}

NpgsqlCommand Command(string sql, params string[] parameters)
{
    var command = new NpgsqlCommand(sql, connection, transaction);
    foreach (var value in parameters) command.Parameters.Add(new NpgsqlParameter { Value = value });
    return command;
}
