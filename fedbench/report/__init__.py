"""What people read: leaderboards, costs and pictures made of results."""
