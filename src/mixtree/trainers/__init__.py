"""Model families behind the Trainer protocol."""
