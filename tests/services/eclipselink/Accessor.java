package org.eclipse.persistence.internal.databaseaccess;

public interface Accessor {
}
