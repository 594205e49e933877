"""Work that follows other work, on the application's side: chains, groups, and `rota.map`."""
